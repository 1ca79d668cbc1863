package program

import (
	"context"
	"errors"
	"time"
)

// forkServers will be the program's fork server; there is none yet.
type forkServers struct{}

var errNoForkServer = errors.New("there is no fork server yet")

func newForkServers(*Program) *forkServers                 { return &forkServers{} }
func (s *forkServers) want(environ)                        {}
func (s *forkServers) start(context.Context, *Group) error { return errNoForkServer }
func (s *forkServers) excuse(error)                        {}
func (s *forkServers) ended(Exit, time.Duration)           {}
func (s *forkServers) close()                              {}
