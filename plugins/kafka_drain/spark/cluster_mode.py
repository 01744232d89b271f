"""Run applications with spark-submit in cluster mode, and find them again by their tags.

The driver runs in the cluster and outlives the process that submitted it. What the two tell each
other goes through run folders in the archives (`run_folder`), and secrets through the cluster
manager (`cluster_manager`).
"""

from __future__ import annotations

import hashlib
import json
import os
import sys
import time
import uuid
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, ClassVar

from kafka_drain.clock import now_text, utc_now
from kafka_drain.errors import ConfigError, LockedError, SparkJobError
from kafka_drain.outages import Outages
from kafka_drain.output import Level, Line
from kafka_drain.spark.client_mode import SparkSubmit, read_spark_line
from kafka_drain.spark.cluster_manager import ClusterApplication, ClusterManager, NoAnswerError
from kafka_drain.spark.engine import StartedApplication, StillRunningError, run_on
from kafka_drain.spark.job_spec import RUN_OPTION, write_private
from kafka_drain.spark.place import SparkConnection, is_kubernetes
from kafka_drain.spark.run_folder import RunDocument, RunFolder, job_key, name_of
from kafka_drain.spark.submit import SparkApplication, without_connect
from kafka_drain.storage.paths import hadoop_path, locate

#: Number of lines of a failed spark-submit that are shown.
LAST_LINES = 30
#: Kinds of jobs that are followed while they run. A validation reads anew what may be damaged by
#: now, a compaction has a window of its own each time, and a send fences the one before.
FOLLOWED = ("drain", "window", "sink")

#: Longest time for a submitted application to stay unknown.
KNOWN_SECONDS = 30.0
#: Longest silence of the cluster manager.
PATIENCE_SECONDS = 300.0


@dataclass(frozen=True)
class Job:
    """One of an application's jobs, as this machine and its driver see it.

    Attributes:
        path: The spec on this machine.
        spec: Its content.
        key: Identity of the job.
        archive: The archive's folder.
    """

    path: Path
    spec: Mapping[str, Any]
    key: str
    archive: str

    @property
    def tag(self) -> str:
        """The tag of applications that write to the archive."""
        return f"kafka-drain-{hashlib.sha256(self.archive.encode()).hexdigest()[:16]}"

    def folders(self) -> list[RunFolder]:
        """Return the archive's run folders."""
        return RunFolder.all_of(locate(self.archive))


def jobs_of(application: SparkApplication) -> list[Job]:
    """Return the jobs of an application."""
    jobs = []
    for path in application.specs:
        spec = json.loads(path.read_text())
        archive = spec.get("archive") or application.archive
        jobs.append(Job(path, spec, job_key(application.kind, spec), archive))
    return jobs


class SparkCluster(SparkSubmit):
    """Runs applications with spark-submit in cluster mode, on YARN or Kubernetes.

    Attributes:
        poll_seconds: Time between two looks at a running application.

    Args:
        hear: Receives each line that the driver prints; None to pass them to standard error.
        manager: The cluster manager; None for the one that the connection names.
        started: Receives the id of each application that is submitted or found again.
    """

    last_seconds = 20.0
    poll_seconds: ClassVar[float] = 1.0

    def __init__(
        self,
        connection: SparkConnection,
        hear: Callable[[Line], None] | None = None,
        manager: ClusterManager | None = None,
        started: Callable[[str], object] = str,
    ) -> None:
        super().__init__(connection, hear)
        self._known = manager
        self._started = started
        self._id = ""
        #: The run that is being submitted, as long as its application's id isn't known.
        self._submits = ""
        self._is_stopped = False
        #: Whether what is found is followed to its end, and not just looked for.
        self._follows = False
        self._runs: list[tuple[Job, RunFolder]] = []
        self._rest: list[Job] = []
        self._heard = 0
        self._waits_for = ""
        self._outages: Outages | None = None

    @property
    def _manager(self) -> ClusterManager:
        assert self._known is not None, "find comes first"
        return self._known

    def __call__(self, application: SparkApplication) -> None:
        """Run an application: follow its running jobs, and submit the rest.

        Raises:
            SparkJobError: When it failed.
        """
        self._is_stopped, self._follows = False, True
        failed: SparkJobError | None = None
        try:
            run_on(self, application, self._started)
        except StillRunningError:
            raise
        except SparkJobError as error:
            # The other jobs are no part of it.
            failed = error
        finally:
            self._follows = False
        if self._rest and not self._is_stopped:
            rest = [str(job.path) for job in self._rest]
            self(replace(application, arguments=[application.kind, *rest]))
        if failed is not None:
            raise failed

    def find(self, application: SparkApplication) -> StartedApplication | None:
        """Return the application that runs these jobs, or whose results nobody has read.

        Raises:
            LockedError: When an application of other options drains one of the archives.
            ConfigError: When the configuration doesn't say where the cluster manager is, or that
                requires other rights.
            MachineError: When a package for it isn't installed.
            NoAnswerError: When it doesn't answer.
        """
        self._known = self._known or manager_of(self._connection, application.conf)
        self._id, self._runs, self._rest = "", [], []
        leases = {}
        secrets: dict[str, Path] = {}
        for job in jobs_of(application):
            folder, app = self._find(job, application.kind)
            found_id = app.id if app else ""
            if folder is None or (self._runs and found_id != self._id):
                self._rest.append(job)
                continue
            self._id = found_id
            self._runs.append((job, folder))
            run = folder.run()
            if app is not None and run is not None:
                leases[job.archive] = run.lease
                secrets |= _secrets_of(job, folder.spec())
        if not self._runs:
            self._rest = []
            return None
        if self._id and self._follows:
            # Its submitter may have been killed before it handed them over. All at once, and so not
            # for one pipeline of a group: a second time changes nothing.
            self._manager.hand_over(self._id, secrets)
            if self._is_stopped:
                # Whoever stopped it didn't know it yet.
                self._kill(self._id)
        return StartedApplication(self._id, leases)

    def _find(self, job: Job, kind: str) -> tuple[RunFolder | None, ClusterApplication | None]:
        """Return the newest run of a job that is running or left a result, and its application."""
        alive = {tag: app for app in self._manager.tagged(job.tag) for tag in app.tags}
        for folder in job.folders():
            run, app = folder.run(), alive.get(folder.path.name)
            if run is None or run.archive != job.archive:
                continue
            if run.key == job.key:
                if _is_wanted(job, kind, app, folder):
                    return folder, app
                if app is None and folder.result() is not None:
                    # So that no later run takes it for its own.
                    self._remove(folder)
            elif app is not None and kind == run.kind == "drain":
                raise LockedError(
                    f"{job.archive} is being drained by {app.id} with other options since "
                    f"{run.submitted_at}; try again when it has ended, or end it with "
                    f"`{app.kill_command}`"
                )
        return None, None

    def submit(self, application: SparkApplication) -> str:
        """Submit an application, and return its id.

        Raises:
            SparkJobError: When spark-submit failed.
            ConfigError: When the cluster manager requires other rights, or another configuration.
        """
        run = name_of(utc_now(), uuid.uuid4().hex[:12])
        secrets: dict[str, Path] = {}
        tags, specs = ["kafka-drain", run], []
        for number, job in enumerate(jobs_of(application)):
            spec = dict(job.spec)
            spec["result_path"] = f"result-{number:03d}.json"
            if "answers_path" in spec:
                spec["answers_path"] = f"answers-{number:03d}.jsonl"
            if spec.get("secrets_path"):
                path = Path(self._manager.secrets_folder) / f"secrets-{number:03d}.json"
                spec["secrets_path"] = str(path)
                secrets |= _secrets_of(job, spec)
            tags.append(job.tag)
            specs.append(spec)
            self._runs.append((job, RunFolder.new(locate(job.archive), run)))
        folders = [str(folder.path) for _, folder in self._runs]
        options = [*self._connection.options, *self._login(), "--deploy-mode", "cluster"]
        code = str(hadoop_path(self._runs[0][1].path))
        options += self._manager.options(run, list(dict.fromkeys(tags)), secrets, code)
        for (job, folder), spec in zip(self._runs, specs, strict=True):
            document = RunDocument(
                kind=application.kind,
                key=job.key,
                submitted_at=now_text(),
                lease=application.leases.get(job.archive, ""),
                archive=job.archive,
            )
            folder.write(document, spec)
        elsewhere = replace(application, arguments=[application.kind, RUN_OPTION, *folders])
        command = elsewhere.command(self._connection.master, options, self._connection.binary)
        self._submits = run
        try:
            ended = self._submit(
                command, {**without_connect(os.environ), **application.environment}
            )
            self._id = self._submitted(run, ended)
            if self._is_stopped:
                # Whoever stopped it may not have seen it yet.
                self._kill(self._id)
                return self._id
            self._manager.hand_over(self._id, secrets)
        except SparkJobError:
            raise
        except BaseException:
            super().cancel("")
            for app in self._manager.tagged(run):
                self._manager.kill(app.id)
            raise
        finally:
            self._submits = ""
        return self._id

    def _submit(self, command: Sequence[str], environment: Mapping[str, str]) -> int:
        """Run spark-submit, and pass on its warnings; if it fails, its last lines."""
        self._start(command, environment, heard=True)
        process, last = self._process, deque[Line](maxlen=LAST_LINES)
        assert process is not None
        for printed in process.stdout or ():
            line = read_spark_line(printed)
            if line.level is Level.PLAIN:
                last.append(line)
            else:
                self._say(line)
        code = process.wait()
        for line in last if code else ():
            self._say(line)
        self._forget()
        return code

    def _submitted(self, run: str, code: int) -> str:
        """Return the id of the application that was submitted as a run."""
        deadline = time.monotonic() + (KNOWN_SECONDS if code == 0 else 0)
        while not (found := self._manager.tagged(run, alive=False)):
            if time.monotonic() >= deadline:
                raise SparkJobError(
                    f"spark-submit failed with exit code {code}"
                    if code
                    else f"{self._manager.name} doesn't know the application {run} that "
                    "spark-submit submitted"
                )
            time.sleep(self.poll_seconds)
        return found[0].id

    def poll(self, application_id: str) -> bool:
        """Read the driver's new output; return whether the application has ended.

        Raises:
            SparkJobError: When it failed or was cancelled, or the cluster manager has been silent,
                or has refused, for five minutes: the application goes on, and a retry finds it.
        """
        if not application_id:
            self._collect()
            return True
        try:
            app = self._manager.application(application_id)
        except (NoAnswerError, ConfigError) as error:
            # A login that has expired may be renewed by the next time.
            if self._is_away(error) > PATIENCE_SECONDS:
                raise NoAnswerError(str(error)) from error
            time.sleep(self.poll_seconds)
            return False
        self._is_away(None)
        self._hear_progress()
        if app.waits_for != self._waits_for:
            self._waits_for = app.waits_for
            self._say(read_spark_line(f"{app.id} waits: {app.waits_for or 'no longer'}"))
        if app.is_alive:
            time.sleep(self.poll_seconds)
            return False
        self._hear_progress()
        has_results = self._collect()
        if not (has_results if app.has_succeeded is None else app.has_succeeded):
            why = f"{app.id} ended as {app.outcome}; its log: `{app.log_command}`"
            # Whoever misses the result says that the log has the reason.
            self._say(Line(why, Level.ERROR))
            raise SparkJobError(why)
        return True

    def _is_away(self, missed: NoAnswerError | ConfigError | None) -> float:
        """Say when the cluster manager stops answering and when it answers again.

        Returns:
            For how many seconds it hasn't answered.
        """
        now = time.monotonic()
        if self._outages is None:
            self._outages = Outages(self._manager.name)
        line = self._outages.news(now, missed)
        if line is not None:
            self._say(line)
        return self._outages.lasts(now)

    def cancel(self, application_id: str) -> None:
        """Kill the application, and wait until it has ended."""
        super().cancel(application_id)
        self._kill(application_id)

    def stop(self) -> None:
        """Stop spark-submit, or kill the application; both, if one has handed over the other."""
        self._is_stopped = True
        super().stop()
        if self._submits and not self._id:
            for app in self._manager.tagged(self._submits):
                self._kill(app.id)
        self._kill(self._id)

    def _kill(self, application_id: str) -> None:
        if not application_id:
            return
        self._manager.kill(application_id)
        deadline = time.monotonic() + self.last_seconds
        while self._manager.application(application_id).is_alive and time.monotonic() < deadline:
            time.sleep(0.2)

    def _say(self, line: Line) -> None:
        if self._hear is None:
            sys.stderr.write(f"{line}\n")
        else:
            self._hear(line)

    def _hear_progress(self) -> None:
        """Hear the lines of the first job's folder; the driver writes them to each."""
        _, folder = self._runs[0]
        try:
            progress = folder.progress()
        except Exception:
            # Each store has its own exceptions, and none may end the application.
            return
        new = progress.printed - self._heard
        if new <= 0:
            return
        self._heard = progress.printed
        for line in progress.lines[-new:]:
            self._say(read_spark_line(line))

    def _remove(self, folder: RunFolder) -> None:
        """Remove a run folder, or say why it stays."""
        try:
            folder.remove()
        except Exception as error:
            # Each store has its own exceptions, and none may fail what has ended, or comes next.
            self._say(Line(f"{folder.path} can't be removed: {error}", Level.WARNING))

    def _collect(self) -> bool:
        """Bring the results to where the jobs expect them, and remove the run folders.

        Returns:
            Whether each job has left a result that isn't an error.
        """
        complete = True
        for job, folder in self._runs:
            result = folder.result()
            complete = complete and result is not None and "error" not in result
            if result is not None:
                if "answers_path" in job.spec and "error" not in result:
                    answers = Path(job.spec["answers_path"])
                    answers.touch(mode=0o600)
                    answers.write_text(folder.answers(), encoding="utf-8")
                write_private(Path(job.spec["result_path"]), result | folder.attempt())
            self._remove(folder)
        if self._id and any(job.spec.get("secrets_path") for job, _ in self._runs):
            try:
                self._manager.clean_up(self._id)
            except (ConfigError, NoAnswerError) as error:
                self._say(Line(f"{error}; the secrets of {self._id} remain", Level.WARNING))
        self._runs, self._id, self._heard = [], "", 0
        return complete


def manager_of(connection: SparkConnection, conf: Mapping[str, str]) -> ClusterManager:
    """Return the cluster manager of a connection.

    Args:
        connection: Names it.
        conf: Spark's configuration.

    Raises:
        ConfigError: When the configuration doesn't say where it is.
        MachineError: When a package for it isn't installed.
    """
    if is_kubernetes(connection.master):
        from kafka_drain.spark.kubernetes import Kubernetes

        return Kubernetes.of(connection, conf)
    from kafka_drain.spark.yarn import ResourceManager

    return ResourceManager.of(os.environ, conf)


def _secrets_of(job: Job, spec: Mapping[str, Any]) -> dict[str, Path]:
    """Return the job's file with secrets, by the name that its spec for the driver gives it."""
    name = Path(spec.get("secrets_path") or "").name
    return {name: Path(job.spec["secrets_path"])} if name else {}


def _is_wanted(job: Job, kind: str, app: ClusterApplication | None, folder: RunFolder) -> bool:
    """Return whether an earlier run of a job takes the place of another one.

    Of runs that have ended, only a drain's result is, and only if nothing is new since.
    """
    if app is not None:
        return kind in FOLLOWED
    if kind != "drain" or job.spec["start"] != job.spec["planned_end"]:
        return False
    result = folder.result()
    return result is not None and "error" not in result
