package ps

import (
	"context"
	"errors"
	"log/slog"
	"net"
)

// Config is the role of one server in a job.
type Config struct {
	Master    string // address of the master
	Index     int
	Listener  net.Listener
	Advertise string // what the others dial; "": the listener's address
	// Dial opens the connection to the master; nil: TCP.
	Dial func(ctx context.Context, addr string) (net.Conn, error)
	Log  *slog.Logger
}

// Run joins the master, which tells the job, and serves until ctx ends or the
// master does not know this server any more; both are no error.
func Run(ctx context.Context, c Config) error { return errors.ErrUnsupported }
