"""The enumerations of ElasticDL's protocol that scripts use."""
