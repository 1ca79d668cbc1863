package local

import (
	"cmp"
	"context"
	"errors"
	"io"
	"log/slog"
	"net"
	"runtime"
	"strings"
	"syscall"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"

	"github.com/elasticdl/elasticdl/trainer/job"
	"github.com/elasticdl/elasticdl/trainer/logline"
	"github.com/elasticdl/elasticdl/trainer/ps"
	"github.com/elasticdl/elasticdl/trainer/worker"
)

// Role is the place of a server or a worker in its job: the flags of its command.
type Role struct {
	Master   string    // --master_address
	Index    int       // --index
	Address  string    // --address of a server; "" = 127.0.0.1:0
	Threads  int       // --threads of a worker's engine, if the job does not say
	LogLevel string    // --log_level; "" = INFO
	Log      io.Writer // standard error
}

func (r Role) logger() *slog.Logger { return slog.New(logline.New(r.Log, level(r.LogLevel))) }

// level is ElasticDL's --log_level for slog.
func level(name string) slog.Level {
	switch strings.ToUpper(name) {
	case "DEBUG":
		return slog.LevelDebug
	case "WARNING":
		return slog.LevelWarn
	case "ERROR":
		return slog.LevelError
	case "CRITICAL":
		return slog.LevelError + 4
	}
	return slog.LevelInfo
}

// RunPS is the main of a parameter server.
func RunPS(ctx context.Context, r Role) error {
	listener, err := listen(ctx, cmp.Or(r.Address, "127.0.0.1:0"))
	if err != nil {
		return err
	}
	defer listener.Close()
	return ps.Run(ctx, ps.Config{Master: r.Master, Index: r.Index, Listener: listener, Log: r.logger()})
}

// listen waits up to ten seconds for an address that another still holds: a
// server that replaces another takes over its port.
func listen(ctx context.Context, addr string) (net.Listener, error) {
	ctx, cancel := context.WithTimeout(ctx, 10*time.Second)
	defer cancel()
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	for {
		l, err := new(net.ListenConfig).Listen(ctx, "tcp", addr)
		if !errors.Is(err, syscall.EADDRINUSE) {
			return l, err
		}
		select {
		case <-ctx.Done():
			return nil, err
		case <-tick.C:
		}
	}
}

// RunWorker is the main of a worker.
func RunWorker(ctx context.Context, r Role) error {
	conn, err := dial(r.Master)
	if err != nil {
		return err
	}
	defer conn.Close()
	return worker.Main(ctx, worker.Options{
		Master: conn, Index: r.Index, Threads: r.Threads, Log: r.logger(),
		Listen: func() (net.Listener, error) { return net.Listen("tcp", "127.0.0.1:0") },
	})
}

// dial connects to a master of this machine, whatever proxies the environment names.
func dial(addr string) (*grpc.ClientConn, error) {
	return grpc.NewClient("passthrough:///"+addr, grpc.WithTransportCredentials(insecure.NewCredentials()), grpc.WithNoProxy())
}

// threads is what a worker computes with, if the job does not say: its part of this machine. It stays
// so if the job is scaled, as an engine's threads are given to it when it is made.
func threads(j *job.Job) int { return max(1, runtime.NumCPU()/max(1, j.NumWorkers)) }
