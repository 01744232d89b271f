"""The proof: compare files and offsets with the manifest, checkpoint, receipts and Kafka."""
