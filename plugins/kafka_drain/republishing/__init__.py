"""Republishing: committed files back to Kafka.

plan.py          what will be sent where, checked before the first record
shard_reader.py  the records of one source partition, in offset order
worker.py        the engine in this process, with confluent-kafka
spark.py         the engine on Spark, with Spark's own Kafka sink
"""
