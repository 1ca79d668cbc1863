package cluster

import (
	"context"
	"net"
	"net/http"
	"os"
	"strings"
	"testing"
	"time"
)

// A containerd that listens may not serve yet: it answers with that error, with or without a
// message before.
func TestRuntimeServes(t *testing.T) {
	dir, err := os.MkdirTemp("", "runtime") // the path of a socket must be short
	if err != nil {
		t.Fatal(err)
	}
	defer os.RemoveAll(dir)
	s := &state{Config: Config{Dir: dir, Nodes: 1}}
	if err := s.runtimeServes(t.Context(), 0); err == nil {
		t.Error("nobody listens, and it serves")
	}
	if err := os.MkdirAll(s.path(nodeName(0)), 0o755); err != nil {
		t.Fatal(err)
	}
	lis, err := net.Listen("unix", s.path(nodeName(0), "containerd.sock"))
	if err != nil {
		t.Fatal(err)
	}
	calls := 0
	var protocols http.Protocols
	protocols.SetUnencryptedHTTP2(true)
	server := http.Server{Protocols: &protocols,
		Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if r.URL.Path != "/runtime.v1.RuntimeService/Version" ||
				r.Header.Get("Content-Type") != "application/grpc" {
				t.Errorf("it is asked for %v with %v", r.URL, r.Header)
			}
			w.Header().Set("Content-Type", "application/grpc")
			switch calls++; calls {
			case 1:
				w.Header().Set("Grpc-Status", "2")
				w.Header().Set("Grpc-Message", "server is not initialized yet")
				return
			case 3:
				<-r.Context().Done()
				return
			}
			w.Header().Set("Trailer", "Grpc-Status")
			w.Write(make([]byte, 5))
			w.Header().Set("Grpc-Status", "0")
		})}
	go server.Serve(lis)
	defer server.Close()
	if err := s.runtimeServes(t.Context(), 0); err == nil || !strings.Contains(err.Error(), "not initialized yet") {
		t.Errorf("one that says that it does not serve: %v", err)
	}
	if err := s.runtimeServes(t.Context(), 0); err != nil {
		t.Errorf("one that serves: %v", err)
	}
	began := time.Now()
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	if err := s.runtimeServes(ctx, 0); err == nil || time.Since(began) > 10*time.Second {
		t.Errorf("one that hangs: %v", err)
	}
}
