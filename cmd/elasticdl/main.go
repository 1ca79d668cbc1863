// Elasticdl trains models on however many machines there are at the moment:
// pods of a cluster, or processes of this machine. It is the user's command and,
// by its hidden commands master, ps and worker, every role of a job.
package main

import "github.com/elasticdl/elasticdl/cmd/elasticdl/cli"

func main() { cli.Main() }
