package ps

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/elasticdl/elasticdl/trainer/elastic/custody"
	"github.com/elasticdl/elasticdl/trainer/elastic/ledger"
	"github.com/elasticdl/elasticdl/trainer/elastic/param"
	"github.com/elasticdl/elasticdl/trainer/elastic/timing"
	"github.com/elasticdl/elasticdl/trainer/store/checkpoint"
)

// failure holds the failed attempts of a server to read the state with which a model generation
// begins. The server has no values then.
type failure struct {
	modelGeneration int64
	// time of the first attempt
	since time.Time
	// error of the last attempt if retrying cannot help; nil: the attempt is repeated
	err error
}

// beginModelGeneration begins a model generation, unless the server is in it, or in a later one.
// The server's state is dropped, and nobody reads it: calls in flight lose their connection. The
// error is [checkpoint.ErrDamaged] if another try would not help.
func (s *Server) beginModelGeneration(ctx context.Context, modelGeneration int64, base custody.Base) error {
	if err := s.takeTurn(ctx); err != nil {
		return err
	}
	defer s.yieldTurn()
	s.mu.Lock()
	before, version, failed := s.modelGeneration, s.rule.version, s.failed
	s.mu.Unlock()
	switch {
	case modelGeneration <= before:
		return nil
	case modelGeneration == failed.modelGeneration && failed.err != nil:
		return failed.err
	case base.Number == 0:
		s.log.Info("The model starts over, from its initial values", "model_generation",
			modelGeneration, "version", version)
		return s.fill(modelGeneration)
	}
	s.log.Info("The model returns to a checkpoint", "model_generation", modelGeneration, "version",
		version, "checkpoint",
		base.Number, "directory", base.Dir)
	err := s.restore(modelGeneration, base)
	if err == nil {
		return nil
	}
	if failed.modelGeneration != modelGeneration {
		failed = failure{modelGeneration: modelGeneration, since: time.Now()}
	}
	if errors.Is(err, checkpoint.ErrDamaged) {
		failed.err = err
	} else if tried := time.Since(failed.since); tried >= timing.Storage {
		failed.err = fmt.Errorf("%w: it could not be read for %v: %w", checkpoint.ErrDamaged,
			tried.Round(time.Second), err)
	}
	s.mu.Lock()
	s.failed = failed
	s.mu.Unlock()
	return cmp.Or(failed.err, err)
}

// fill makes the server one that knows nothing but the model's initial values, in that generation.
// Until they are made it has none, and is in no generation: there is not the memory for both.
func (s *Server) fill(modelGeneration int64) error {
	s.empty()
	layout, values, err := s.config.Initial(s.config.Index, s.config.Servers)
	if err == nil {
		err = layout.Validate()
	}
	span := s.spanOf(layout)
	if err == nil && len(values) != span.Len() {
		err = fmt.Errorf("%d values of %d elements", len(values), span.Len())
	}
	if err != nil {
		return fmt.Errorf("make the initial values: %w", err)
	}
	s.store.fill(layout, span, values, 0)
	s.enterModelGeneration(modelGeneration, layout, new(ledger.Ledger), 0)
	return nil
}

// restore makes the server one that has what a checkpoint has of its elements, in that generation.
func (s *Server) restore(modelGeneration int64, base custody.Base) error {
	s.empty()
	dir, err := s.config.Open.Open(base.Dir)
	if err != nil {
		return fmt.Errorf("open %s: %w", base.Dir, err)
	}
	c, err := dir.ReadFitting(checkpoint.Name{Number: base.Number, Claim: base.Claim}, base.Checksum,
		s.layout, s.config.Optimizer.Name)
	if err != nil {
		return err
	}
	layout := c.ParamLayout()
	span := s.spanOf(layout)
	s.store.fill(layout, span, make([]float32, span.Len()), c.Version)
	if err := dir.Restore(c, s.store.content()); err != nil {
		return err
	}
	applied := &c.Ledger
	if base.Fresh {
		applied = new(ledger.Ledger)
	}
	s.enterModelGeneration(modelGeneration, layout, applied, c.Version)
	return nil
}

func (s *Server) spanOf(layout param.Layout) param.Range {
	return param.Partition(layout.Len(), s.config.Servers)[s.config.Index]
}

// enterModelGeneration makes what is in the store that of a generation, at a version, with what the
// ledger says in it. The caller has the turn, or is the only one to know the server.
func (s *Server) enterModelGeneration(modelGeneration int64, layout param.Layout, applied *ledger.Ledger,
	version int64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	// the same in each generation, and read without a lock
	if s.layout == nil {
		s.layout, s.span = layout, s.spanOf(layout)
	}
	s.rule, s.modelGeneration, s.failed = newRule(s.config), modelGeneration, failure{}
	s.rule.ledger, s.rule.version = applied.Clone(), version
	s.self.SetModelGeneration(modelGeneration)
	s.releaseCut(custody.Report{})
	if s.config.CheckpointDir != "" { // gradients wait for the first copy, too
		s.copy.Prepare(s.store.content(), nil)
	}
}

// empty drops all that the server has, and the connections of workers, which have yet to hear of
// it.
func (s *Server) empty() {
	s.mu.Lock()
	s.modelGeneration = 0
	for conn := range s.data {
		conn.Close()
	}
	s.mu.Unlock()
	s.store.empty()
}
