"""Has the enumerations of ElasticDL's protocol that scripts name."""
