package cluster

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"time"

	"github.com/elasticdl/elasticdl/tools/kubernetes/proc"
)

// progress writes a line for each completed step, with the time since the start.
type progress struct {
	out   io.Writer
	start time.Time
}

func (p *progress) done(format string, args ...any) {
	fmt.Fprintf(p.out, "%6.2f s  %s\n", time.Since(p.start).Seconds(), fmt.Sprintf(format, args...))
}

// await calls ask until it returns nil. It gives up when a component on which it depends ends, or
// after the time limit patience; the error has the end of the log of that component, or of the
// first.
func (s *state) await(whole context.Context, what string, components []string, ask func(context.Context) error) error {
	ctx, cancel := context.WithTimeoutCause(whole, patience, fmt.Errorf("it took longer than %v", patience))
	defer cancel()
	tick := time.NewTicker(25 * time.Millisecond)
	defer tick.Stop()
	for {
		err := ask(ctx)
		if err == nil {
			return nil
		}
		for _, name := range components {
			if p, ok := s.process(name); ok && p.State() == proc.Ended {
				return fmt.Errorf("wait for %s: %s has ended; the end of %s:\n%s", what, name, p.Log, logEnd(p.Log))
			}
		}
		select {
		case <-ctx.Done():
			if whole.Err() != nil {
				return fmt.Errorf("wait for %s: %w", what, context.Cause(whole))
			}
			p, _ := s.process(components[0])
			return fmt.Errorf("wait for %s: %w: %w; the end of %s:\n%s", what, context.Cause(ctx), err,
				p.Log, logEnd(p.Log))
		case <-tick.C:
		}
	}
}

// logEnd returns the last lines of a file, and shortens very long ones.
func logEnd(file string) string {
	const lines, width, window = 15, 300, 1 << 16
	f, err := os.Open(file)
	if err != nil {
		return err.Error()
	}
	defer f.Close()
	if size, err := f.Seek(0, io.SeekEnd); err == nil {
		f.Seek(max(0, size-window), io.SeekStart)
	}
	b, err := io.ReadAll(f)
	if err != nil {
		return err.Error()
	}
	all := bytes.Split(bytes.TrimRight(b, "\n"), []byte("\n"))
	var end bytes.Buffer
	for _, line := range all[max(0, len(all)-lines):] {
		fmt.Fprintf(&end, "  %s\n", line[:min(len(line), width)])
	}
	return end.String()
}

// runtimeServes asks a node's containerd for its version, as a kubelet does at its start.
// containerd listens a moment before it can answer, and a kubelet that gets an error then ends. The
// request is a gRPC call with an empty message.
func (s *state) runtimeServes(ctx context.Context, node int) error {
	var protocols http.Protocols
	protocols.SetUnencryptedHTTP2(true)
	transport := &http.Transport{Protocols: &protocols,
		DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
			return new(net.Dialer).DialContext(ctx, "unix", s.path(nodeName(node), "containerd.sock"))
		}}
	defer transport.CloseIdleConnections()
	ctx, cancel := context.WithTimeout(ctx, time.Second)
	defer cancel()
	// the frame of an empty message: not compressed, of length 0
	empty := bytes.NewReader(make([]byte, 5))
	call, err := http.NewRequestWithContext(ctx, http.MethodPost,
		"http://containerd/runtime.v1.RuntimeService/Version", empty)
	if err != nil {
		return err
	}
	call.Header = http.Header{"Content-Type": {"application/grpc"}, "Te": {"trailers"}}
	answer, err := transport.RoundTrip(call)
	if err != nil {
		return err
	}
	defer answer.Body.Close()
	if _, err := io.Copy(io.Discard, answer.Body); err != nil {
		return err
	}
	status, message := answer.Trailer.Get("Grpc-Status"), answer.Trailer.Get("Grpc-Message")
	// without a message the trailers are in the headers
	if status == "" {
		status, message = answer.Header.Get("Grpc-Status"), answer.Header.Get("Grpc-Message")
	}
	if status != "0" {
		return fmt.Errorf("ask containerd for its version: status %s: %s", status, message)
	}
	return nil
}

// lookup asks the cluster's DNS, through its Service, for the address of the API server.
func lookup(ctx context.Context) error {
	// a request before kube-proxy has its rules gets no answer
	ctx, cancel := context.WithTimeout(ctx, 300*time.Millisecond)
	defer cancel()
	resolver := net.Resolver{PreferGo: true, Dial: func(ctx context.Context, network, _ string) (net.Conn, error) {
		return new(net.Dialer).DialContext(ctx, network, net.JoinHostPort(dnsService, "53"))
	}}
	_, err := resolver.LookupHost(ctx, "kubernetes.default.svc.cluster.local.")
	return err
}
