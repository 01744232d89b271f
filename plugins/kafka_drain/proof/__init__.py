"""The proof: files and offsets against manifest, checkpoint, receipts and Kafka."""
