// Command server is a parameter server of the bench, with nothing else in its program, so that its
// memory is that of a server. It serves until its standard input ends, and prints its address.
//
//	server JOB OPTIMIZER DATA ROWS   with --data_encryption=DATA, and a matrix of ROWS by 1,000
package main

import (
	"bufio"
	"fmt"
	"net"
	"os"
	"strconv"

	"github.com/elasticdl/elasticdl/test/prove"
	"github.com/elasticdl/elasticdl/test/speak"
	"github.com/elasticdl/elasticdl/trainer/elastic/identity"
	"github.com/elasticdl/elasticdl/trainer/elastic/param"
	"github.com/elasticdl/elasticdl/trainer/elastic/pod"
	"github.com/elasticdl/elasticdl/trainer/train/optim"
	"github.com/elasticdl/elasticdl/trainer/train/ps"
)

func main() {
	if err := serve(os.Args[1], os.Args[2], os.Args[3] == "off", os.Args[4]); err != nil {
		fmt.Fprintln(os.Stderr, "server of the bench:", err)
		os.Exit(1)
	}
}

func serve(job, optimizer string, plain bool, size string) error {
	if err := prove.Share(job, []byte(os.Getenv("ELASTICDL_BENCH_AUTHORITY"))); err != nil {
		return err
	}
	rows, err := strconv.Atoi(size)
	if err != nil {
		return fmt.Errorf("number of rows: %w", err)
	}
	server, err := ps.NewServer(ps.ServerConfig{
		Self:    speak.Self(identity.Header{Job: job, Role: pod.PS, Incarnation: 1, ModelGeneration: 1}),
		Initial: func(int, int) (param.Layout, []float32, error) { return matrix(rows) }, Async: true, PlainData: plain,
		Optimizer: optim.Config{Name: optimizer, LearningRate: 1e-3},
	})
	if err != nil {
		return err
	}
	lis, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return err
	}
	fmt.Println(lis.Addr())
	go func() {
		bufio.NewReader(os.Stdin).ReadString(0)
		server.Stop()
	}()
	return server.Serve(lis)
}

// matrix returns a model of that many rows of 1,000 values.
func matrix(rows int) (param.Layout, []float32, error) {
	values := make([]float32, 1000*rows)
	for i := range values {
		values[i] = 1e-3
	}
	return param.Layout{{Name: "dense/kernel", Shape: []int{rows, 1000}, Trainable: true}}, values, nil
}
