"""Elastic training with frameworks that have a training loop of their own.

Each module needs the framework of its name, and is imported by the script:
``from elasticdl.integrations.transformers import ElasticTrainer``. The package itself needs none.
"""
