"""Has ElasticDL's helpers."""
