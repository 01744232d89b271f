"""Republishing: sealed files back to Kafka, exactly once.

republish.py     a run as a whole: plan, open, send, verify, receipt
sending.py       THE PROTOCOL: how one shard is sent; the same in both engines

request.py       what is asked for
selection.py     which records
placement.py     which partition of the target
planning.py      from the archive's receipts to a plan
targets.py       what may stand in the way in the target topics
into_source.py   whether records may go into a topic that the archive drains
earlier.py       what earlier runs sent
openings.py      which of several runs may open
binding.py       the cluster and the topics that a run is bound to
follow.py        a mirror: what was sealed since the run before
plan.py          the plan, as it is frozen
shards.py        its units (chains.py: which of them one writer sends)
runs.py          a run's folder in the archive

opening.py       the progress of all shards in Kafka before the first record
ledger.py        reading progress
pacing.py        how much may be on its way at once
producer.py      transactional producers
kafka_errors.py  Kafka's errors as our own
shard_reader.py  a shard's records, in offset order (row_filter.py, row_counts.py, rows.py)

engines.py       which engine sends
worker.py        processes of this machine (jobs.py: what each is told)
spark.py         Spark, from the caller's side

verifying.py     compares the target with the files (target_reader.py, content.py; verification.py)
matching.py      one partition: walk.py where all is right, damage_counts.py where it isn't
offset_map.py    source offsets to target offsets
group_translation.py
                 committed offsets of consumer groups, for the target (group_records.py)
"""
