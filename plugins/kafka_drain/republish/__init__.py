"""Republishing: sealed files back to Kafka, exactly once.

run.py           a run as a whole: plan, open, send, verify, receipt

planning/        what is asked for (request), which records (selection), what may stand in the way
                 (targets, into_source, previous_runs, openings, binding), the frozen plan and its
                 folder (planner, plan, shards, chains, runs), mirrors (follow)
sending/         THE PROTOCOL (shard_sender): how one shard is sent; the same in both engines
verifying/       the target, read back and compared with the files record by record
engines/         processes of this machine (worker), or Spark's executors (spark)
groups/          committed offsets of consumer groups, for the target
"""
