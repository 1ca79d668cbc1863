package ps

import (
	"errors"
	"log/slog"
	"net"

	"github.com/elasticdl/elasticdl/trainer/optim"
	"github.com/elasticdl/elasticdl/trainer/param"
)

// ServerConfig is what a server is. The zero value of what is optional is ElasticDL's default.
type ServerConfig struct {
	Index, Servers int          // Servers 0: 1
	Layout         param.Layout // nil: the first worker's
	Optimizer      optim.Config
	// LearningRate is of the version that an update starts from; nil: the optimizer's.
	LearningRate func(version int64) float64

	Async                 bool // every gradient is an update
	GradsToWait           int  // gradients in an update; 0: 1
	SyncVersionTolerance  *int // nil: not given
	LRStalenessModulation bool
	EvaluationSteps       int // a snapshot at every such version, if none is held; 0: none

	Log *slog.Logger // nil: none
}

// Server is one parameter server.
type Server struct{ config ServerConfig }

// NewServer checks the configuration.
func NewServer(config ServerConfig) (*Server, error) { return nil, errors.ErrUnsupported }

// Serve accepts connections, both kinds, until Stop. It closes lis.
func (s *Server) Serve(lis net.Listener) error { return errors.ErrUnsupported }

// Stop ends Serve, every connection and every call, and waits for them.
func (s *Server) Stop() {}

// Version is the number of updates applied.
func (s *Server) Version() int64 { return 0 }

// Snapshot is the version whose snapshot is held, 0 if none.
func (s *Server) Snapshot() int64 { return 0 }
