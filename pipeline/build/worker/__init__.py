"""The work of one worker: reading chunks, building shards. No Beam."""
