"""Republishing: send sealed files back to Kafka, exactly once.

run.py           a whole run: plan, open, send, verify, receipt

planning/        what is requested (request), which records (selection), what may prevent the run
                 (targets, into_source, previous_runs, openings, binding), the frozen plan and its
                 folder (planner, plan, shards, chains, runs), mirrors (follow)
changing/        leaves records out and changes them: one pure function, for all that follows
sending/         THE PROTOCOL (shard_sender): how one shard is sent; the same in both engines
verifying/       reads the target back and compares it with the files, record by record
engines/         run on this machine's processes (worker) or on Spark's executors (spark)
groups/          translate committed consumer group offsets to the target
"""
