"""Run applications with spark-submit in YARN's cluster mode, and find them again by their tags.

The driver runs in the cluster and outlives the process that submitted it. What the two tell each
other goes through run folders in the archives (`run_folder`); secrets go with spark-submit's
`--files` into the application's staging folder, which YARN lets only its user read.
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
from datetime import datetime, timezone
from pathlib import Path
from typing import Any, ClassVar

from kafka_drain.errors import LockedError, SparkJobError
from kafka_drain.progress import Level, Line
from kafka_drain.spark.engine import Found, run_on
from kafka_drain.spark.job_spec import RUN_OPTION, write_private
from kafka_drain.spark.run_folder import RunDocument, RunFolder, job_key, name_of
from kafka_drain.spark.runner import SparkConnection, SparkSubmit, read_spark_line
from kafka_drain.spark.submit import SparkApplication
from kafka_drain.spark.yarn import NoAnswerError, ResourceManager, YarnApplication
from kafka_drain.storage.paths import locate

#: Number of lines of a failed spark-submit that are shown.
LAST_LINES = 30
#: Kinds of jobs that are followed while they run. A validation reads anew what may be damaged by
#: now, a compaction has a window of its own each time, and a send fences the one before.
FOLLOWED = ("drain", "window", "sink")

#: How long a submitted application may stay unknown.
KNOWN_SECONDS = 30.0
#: How long the ResourceManager may be silent.
PATIENCE_SECONDS = 300.0


@dataclass(frozen=True)
class Job:
    """One of an application's jobs, as this machine and its driver see it.

    Attributes:
        path: The spec on this machine.
        spec: Its content.
        key: What identifies the job.
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
    """Runs applications with spark-submit in cluster mode, on YARN.

    Attributes:
        poll_seconds: Time between two looks at a running application.

    Args:
        connection: Where applications run.
        hear: Receives each line that the driver prints; None to pass them to standard error.
        manager: The ResourceManager; None for the one in `$HADOOP_CONF_DIR`.
    """

    last_seconds = 20.0
    poll_seconds: ClassVar[float] = 1.0

    def __init__(
        self,
        connection: SparkConnection,
        hear: Callable[[Line], None] | None = None,
        manager: ResourceManager | None = None,
    ) -> None:
        super().__init__(connection, hear)
        self._yarn = manager or ResourceManager.of(os.environ)
        self._id = ""
        self._runs: list[tuple[Job, RunFolder]] = []
        self._rest: list[Job] = []
        self._heard = 0
        self._silent_since: float | None = None

    def __call__(self, application: SparkApplication) -> None:
        """Run an application: follow what is found of it, and submit the rest.

        Raises:
            SparkJobError: When it failed.
        """
        run_on(self, application)
        if self._rest:
            rest = [str(job.path) for job in self._rest]
            self(replace(application, arguments=[application.kind, *rest]))

    def find(self, application: SparkApplication) -> Found | None:
        """Return the application that runs these jobs, or whose results nobody has read.

        Raises:
            LockedError: When an application of other options drains one of the archives.
            ConfigError: When the ResourceManager requires a login.
            NoAnswerError: When it doesn't answer.
        """
        self._id, self._runs, self._rest = "", [], []
        leases = {}
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
        if not self._runs:
            self._rest = []
            return None
        return Found(self._id, leases)

    def _find(self, job: Job, kind: str) -> tuple[RunFolder | None, YarnApplication | None]:
        """Return the newest run of a job that is running or left a result, and its application."""
        alive = {tag: app for app in self._yarn.tagged(job.tag) for tag in app.tags}
        for folder in job.folders():
            run, app = folder.run(), alive.get(folder.path.name)
            if run is None or run.archive != job.archive:
                continue
            if run.key == job.key:
                if _is_wanted(job, kind, app, folder):
                    return folder, app
                if app is None and folder.result() is not None:
                    # So that no later run takes it for its own.
                    folder.remove()
            elif app is not None and kind == run.kind == "drain":
                raise LockedError(
                    f"{job.archive} is being drained by {app.id} with other options since "
                    f"{run.submitted_at}; try again when it has ended, or end it with "
                    f"`yarn application -kill {app.id}`"
                )
        return None, None

    def submit(self, application: SparkApplication) -> str:
        """Submit an application, and return its id.

        Raises:
            SparkJobError: When spark-submit failed.
            ConfigError: When the ResourceManager requires a login.
        """
        run = name_of(datetime.now(timezone.utc), uuid.uuid4().hex[:12])
        files, tags = [], ["kafka-drain", run]
        for number, job in enumerate(jobs_of(application)):
            spec = dict(job.spec)
            spec["result_path"] = f"result-{number:03d}.json"
            if "answers_path" in spec:
                spec["answers_path"] = f"answers-{number:03d}.jsonl"
            if spec.get("secrets_path"):
                name = f"secrets-{number:03d}.json"
                files.append(f"{spec['secrets_path']}#{name}")
                spec["secrets_path"] = name
            folder = RunFolder.new(locate(job.archive), run)
            document = RunDocument(
                kind=application.kind,
                key=job.key,
                submitted_at=datetime.now(timezone.utc).isoformat(timespec="milliseconds"),
                lease=application.leases.get(job.archive, ""),
                archive=job.archive,
            )
            folder.write(document, spec)
            tags.append(job.tag)
            self._runs.append((job, folder))
        options = [*self._connection.options, *self._login(), "--deploy-mode", "cluster"]
        options += ["--conf", f"spark.yarn.tags={','.join(dict.fromkeys(tags))}"]
        if files:
            options += ["--files", ",".join(files)]
        folders = [str(folder.path) for _, folder in self._runs]
        elsewhere = replace(application, arguments=[application.kind, RUN_OPTION, *folders])
        command = elsewhere.command(self._connection.master, options, self._connection.binary)
        try:
            code = self._submit(command, {**os.environ, **application.environment})
            self._id = self._submitted(run, code)
        except SparkJobError:
            raise
        except BaseException:
            super().cancel("")
            for app in self._yarn.tagged(run):
                self._yarn.kill(app.id)
            raise
        return self._id

    def _submit(self, command: Sequence[str], environment: Mapping[str, str]) -> int:
        """Run spark-submit, and say what it warns of; if it fails, the last that it printed."""
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
        while not (found := self._yarn.tagged(run, alive=False)):
            if time.monotonic() >= deadline:
                raise SparkJobError(
                    f"spark-submit failed with exit code {code}"
                    if code
                    else f"YARN doesn't know the application {run} that spark-submit submitted"
                )
            time.sleep(self.poll_seconds)
        return found[0].id

    def poll(self, application_id: str) -> bool:
        """Hear what the driver has printed; return whether the application has ended.

        Raises:
            SparkJobError: When it failed or was cancelled, or the ResourceManager has been silent
                for five minutes: the application goes on, and a retry finds it.
        """
        if not application_id:
            self._collect()
            return True
        try:
            app = self._yarn.application(application_id)
            self._silent_since = None
        except NoAnswerError:
            now = time.monotonic()
            self._silent_since = self._silent_since or now
            if now - self._silent_since > PATIENCE_SECONDS:
                raise
            time.sleep(self.poll_seconds)
            return False
        self._hear_progress()
        if app.is_alive:
            time.sleep(self.poll_seconds)
            return False
        self._hear_progress()
        self._collect()
        if not app.has_succeeded:
            raise SparkJobError(
                f"{app.id} ended as {app.final_status} {app.diagnostics[:500].strip()!r}; its log: "
                f"`yarn logs -applicationId {app.id}`"
            )
        return True

    def cancel(self, application_id: str) -> None:
        """Kill the application, and wait until it has ended."""
        super().cancel(application_id)
        self._kill(application_id)

    def stop(self) -> None:
        """Stop spark-submit, or kill the application."""
        super().stop()
        self._kill(self._id)

    def _kill(self, application_id: str) -> None:
        if not application_id:
            return
        self._yarn.kill(application_id)
        deadline = time.monotonic() + self.last_seconds
        while self._yarn.application(application_id).is_alive and time.monotonic() < deadline:
            time.sleep(0.2)

    def _say(self, line: Line) -> None:
        if self._hear is None:
            sys.stderr.write(f"{line}\n")
        else:
            self._hear(line)

    def _hear_progress(self) -> None:
        """Hear the lines of the first job's folder; the driver writes them to each."""
        _, folder = self._runs[0]
        progress = folder.progress()
        new = progress.printed - self._heard
        self._heard = progress.printed
        for line in progress.lines[-new:] if new > 0 else ():
            self._say(read_spark_line(line))

    def _collect(self) -> None:
        """Bring the results to where the jobs expect them, and remove the run folders."""
        for job, folder in self._runs:
            result = folder.result()
            if result is not None:
                if "answers_path" in job.spec and "error" not in result:
                    answers = Path(job.spec["answers_path"])
                    answers.touch(mode=0o600)
                    answers.write_text(folder.answers())
                write_private(Path(job.spec["result_path"]), result | folder.attempt())
            folder.remove()
        self._runs, self._id, self._heard = [], "", 0


def _is_wanted(job: Job, kind: str, app: YarnApplication | None, folder: RunFolder) -> bool:
    """Return whether an earlier run of a job takes the place of another one.

    Of runs that have ended, only a drain's result is, and only if nothing is new since.
    """
    if app is not None:
        return kind in FOLLOWED
    if kind != "drain" or job.spec["start"] != job.spec["planned_end"]:
        return False
    result = folder.result()
    return result is not None and "error" not in result
