package role

import (
	"errors"
	"io"
	"log/slog"
	"strings"
	"time"

	"github.com/elasticdl/elasticdl/trainer/logline"
)

// Logger logs as ElasticDL does, what its --log_level wants; "" = INFO.
func Logger(out io.Writer, logLevel string) *slog.Logger {
	return slog.New(logline.New(out, level(logLevel)))
}

// level translates ElasticDL's --log_level for slog.
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

// ErrNoLog says that a job has no log like the one that is asked for: none of that pod, or none of the start before its last.
var ErrNoLog = errors.New("not found")

// LogOptions choose what of a job's logs is wanted.
type LogOptions struct {
	Pod      string        // "worker-0"; "": all, each line behind "[worker-0] "
	Follow   bool          // go on, with the logs of pods to come, until the job has ended
	Tail     int64         // so many last lines of each pod that there is; negative: all
	Since    time.Duration // lines that are no older than this; 0: all
	Previous bool          // of each container the start before its last, which has ended; only on a cluster
}
