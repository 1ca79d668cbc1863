// Program is elasticdl with models for the tests of jobs, built as a user builds it with models of
// their own.
package main

import (
	"github.com/elasticdl/elasticdl/cmd/elasticdl/cli"
	"github.com/elasticdl/elasticdl/test/count"
	"github.com/elasticdl/elasticdl/test/pace"
)

func main() { cli.Main(pace.Small, pace.Patient, count.Model(4000), count.Model(8000)) }
