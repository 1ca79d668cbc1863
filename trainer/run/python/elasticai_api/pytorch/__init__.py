"""ElasticDL's names for PyTorch."""
