package local

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/elasticdl/elasticdl/trainer/elastic/job"
	"github.com/elasticdl/elasticdl/trainer/elastic/pod"
	"github.com/elasticdl/elasticdl/trainer/master"
	"github.com/elasticdl/elasticdl/trainer/runtime/role"
	"github.com/elasticdl/elasticdl/trainer/wire"
	"github.com/elasticdl/elasticdl/trainer/wire/rpc"
)

// MasterConfig has the flags of a master's command, which the launcher sets.
type MasterConfig struct {
	// --job_dir
	JobDir string
	// --launch: the incarnation, from 1
	Incarnation int
	// --resume: the job begins with its newest checkpoint
	Resume bool
	// standard error
	Log io.Writer
}

// RunMaster is the main function of a master. It runs the job of the directory, from the record of
// earlier masters, and returns when every pod of it has ended. It returns nil if every record was
// done.
func RunMaster(ctx context.Context, c MasterConfig) error {
	lock.Store(inherited(lockEnv))
	endWithParent()
	h, err := inherit(dir(c.JobDir), c.Incarnation)
	if err != nil {
		return fmt.Errorf("run the master of %s: %w", c.JobDir, err)
	}
	defer h.close()
	status, err := h.stored()
	if err != nil || c.Incarnation == 1 {
		status = &wire.JobStatus{Name: h.dir.name(), State: string(job.Pending), StartedUnixMs: time.Now().UnixMilli()}
	}
	final, err := h.run(ctx, c, status)
	if final != nil {
		status = final
	}
	if !job.State(status.State).Ended() && !errors.Is(err, master.ErrSuspended) {
		status.State, status.EndedUnixMs = string(job.Failed), time.Now().UnixMilli()
		if err != nil {
			status.Reason = err.Error()
		}
		master.Rejudge(status, time.Now())
	}
	return errors.Join(err, h.state.store(status))
}

// joined returns the problems of the state and of the disks, without those of the disks that the
// state has already.
func joined(state, disks []string) []string {
	return append(state, slices.DeleteFunc(disks, func(full string) bool {
		return slices.ContainsFunc(state, func(known string) bool {
			return known == full || strings.HasPrefix(known, full+":")
		})
	})...)
}

// heir holds the state that a master gets from its launcher, and from earlier masters.
type heir struct {
	dir   dir
	state *state
	self  *rpc.Self
	// the same for all masters of a job
	listener net.Listener
	pods     *pods
	// last record of the earlier masters; nil: this is the first one
	former []byte
}

// inherit opens the descriptors that the launcher has passed to this process, and reads the last
// record.
func inherit(d dir, incarnation int) (*heir, error) {
	var err error
	h := &heir{dir: d}
	listener, session := inherited(listenerEnv), inherited(sessionEnv)
	if listener == nil || session == nil {
		return nil, errors.New("it was not started by a launcher; use elasticdl train --runtime=local")
	}
	if h.self, err = d.self(pod.Master, incarnation); err != nil {
		return nil, err
	}
	if h.listener, err = net.FileListener(listener); err != nil {
		return nil, err
	}
	listener.Close()
	conn, err := connection(session)
	if err != nil {
		return nil, err
	}
	h.pods = newPods(conn)
	h.state = &state{dir: d, give: h.pods.keep, given: make(map[string]bool)}
	if h.former, err = h.read(recordFile); errors.Is(err, fs.ErrNotExist) {
		h.former, err = nil, nil
	}
	if err != nil {
		h.pods.close()
	}
	return h, err
}

// read returns a file of the state that earlier masters have written: what the launcher keeps of
// it, or what is on the disk.
func (h *heir) read(file string) ([]byte, error) {
	text, ok, err := h.pods.kept(file)
	if ok || err != nil {
		return text, err
	}
	return os.ReadFile(h.dir.path(file))
}

// stored returns the status that was written last.
func (h *heir) stored() (*wire.JobStatus, error) {
	text, ok, err := h.pods.kept(statusFile)
	switch {
	case err != nil:
		return nil, err
	case ok:
		return decode(text)
	}
	return h.dir.stored()
}

// ready writes master.json: the master listens.
func (h *heir) ready() error {
	text, err := json.MarshalIndent(address{
		PID: os.Getpid(), Address: h.listener.Addr().String(), Incarnation: h.self.Header().Incarnation,
		StartedUnixMs: time.Now().UnixMilli(),
	}, "", "  ")
	if err != nil {
		return err
	}
	return h.state.write(masterFile, append(text, '\n'))
}

func (h *heir) close() {
	h.listener.Close()
	h.pods.close()
}

// run runs the job, and returns its final status, or nil if it could not begin.
func (h *heir) run(ctx context.Context, c MasterConfig, before *wire.JobStatus) (*wire.JobStatus, error) {
	var j job.Job
	if err := h.dir.readJSON("job.json", &j); err != nil {
		return nil, err
	}
	before.Type, before.Strategy, before.Workers = string(j.Type), string(j.Strategy), int32(j.NumWorkers)
	log := role.Logger(role.Lossy(c.Log), j.LogLevel)
	config, err := role.Plan(&j, log)
	if err != nil {
		return nil, err
	}
	config.Grace = j.TimeToEnd()
	config.Listener, config.Pods = h.listener, h.pods
	config.Resume, config.Former, config.Memory = c.Resume, h.former, memory{h.state}
	if config.Journal, config.Curve, err = h.dir.readPast(); err != nil {
		log.Warn("The journal does not show the time before the resume", "error", err)
	}
	watched, over := newDisks(h.dir, &j), make(chan struct{})
	defer close(over)
	// not waited for: a network file system may not answer
	go watched.run(over)
	config.Self, config.Users = h.self, true
	config.Problems = func() []string { return joined(h.state.problems(), watched.problems()) }
	config.Owner, config.Look = h.dir.owner(h.self.Header().Job, os.Getppid()), Standing
	config.OnStatus = func(s *wire.JobStatus) {
		if err := h.state.store(s); err != nil {
			log.Error("Write the job's status", "error", err)
		}
	}
	notices := make(chan master.Notice, 1)
	config.Notices = notices
	defer onSuspend(func() {
		select {
		case notices <- master.Suspend:
		default: // it was notified already
		}
	})()
	if err := h.ready(); err != nil {
		return nil, err
	}
	defer role.Measure(&config, metricsAddress(&j, h.listener.Addr(), j.MetricsPort))()
	defer role.Record(&config)()
	return master.Run(ctx, config)
}
