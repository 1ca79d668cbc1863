"""Has ElasticDL's names for PyTorch."""
