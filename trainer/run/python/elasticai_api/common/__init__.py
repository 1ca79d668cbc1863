"""The parts of elasticai_api that do not depend on the framework."""
