package role

import (
	"errors"
	"io"
	"log/slog"
	"strings"
	"time"

	"github.com/elasticdl/elasticdl/trainer/logline"
	"github.com/elasticdl/elasticdl/trainer/run/program"
)

// Logger returns a logger in ElasticDL's format, with the level of --log_level; "": INFO.
func Logger(out io.Writer, logLevel string) *slog.Logger {
	return slog.New(logline.New(out, level(logLevel)))
}

// attended returns a writer of messages to a log and, without their source files, to the command
// that attends the job, if one does.
func attended(log io.Writer, d *program.Display) io.Writer {
	if d == nil {
		return log
	}
	return io.MultiWriter(log, logline.Unsourced{Out: d.Stderr})
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

// ErrNoLog is returned if a job has no log of that pod, or none of the pod's previous start.
var ErrNoLog = errors.New("not found")

// LogOptions selects logs of a job.
type LogOptions struct {
	// "worker-0"; "": all pods, with "[worker-0] " before each line
	Pod string
	// continue, also with pods that are created later, until the job has ended
	Follow bool
	// number of last lines of each present pod; negative: all
	Tail int64
	// largest age of a line; 0: no limit
	Since time.Duration
	// the logs of each container's previous start; only on a cluster
	Previous bool
}
