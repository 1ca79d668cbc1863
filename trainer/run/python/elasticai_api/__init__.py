"""ElasticDL's elasticai_api over the agent's socket, without gRPC, protobuf and Horovod."""
