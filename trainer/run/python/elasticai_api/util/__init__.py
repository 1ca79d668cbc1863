"""ElasticDL's helpers."""
