module github.com/elasticdl/elasticdl/tools/gen

go 1.26

require (
	github.com/bufbuild/protocompile v0.14.1
	github.com/mmcloughlin/avo v0.6.0
	google.golang.org/protobuf v1.36.12
)

require (
	golang.org/x/mod v0.23.0 // indirect
	golang.org/x/sync v0.11.0 // indirect
	golang.org/x/tools v0.30.0 // indirect
	google.golang.org/grpc/cmd/protoc-gen-go-grpc v1.5.1 // indirect
)

tool (
	google.golang.org/grpc/cmd/protoc-gen-go-grpc
	google.golang.org/protobuf/cmd/protoc-gen-go
)
