package identity

import (
	"encoding/binary"
	"errors"
	"fmt"
	"slices"

	"github.com/elasticdl/elasticdl/trainer/elastic/pod"
)

// Protocol is the version of the wire: of calls, frames and hellos alike. It changes whenever one
// of them does.
const Protocol = 6

// User is the role of a command that looks at a job or changes it.
const User pod.Role = 4

// Header identifies the sender of a message.
type Header struct {
	// 0 is written as [Protocol]
	Protocol uint16
	// UID
	Job   string
	Role  pod.Role
	Index int
	// of the pod, from 1
	Incarnation int
	// the newest incarnation of the master that was heard; 0: none
	Master int
	// of the model that the speaker works with, from 1; 0: none yet
	ModelGeneration int64
}

// ID returns the pod that the header names.
func (h Header) ID() pod.ID { return pod.ID{Role: h.Role, Index: h.Index} }

// Name returns whom the speaker has to prove to be.
func (h Header) Name() Name { return Name{Job: h.Job, ID: h.ID(), Incarnation: h.Incarnation} }

// String describes the speaker.
func (h Header) String() string {
	who := "a user"
	if h.Role != User {
		who = fmt.Sprintf("%v (incarnation %d)", h.ID(), h.Incarnation)
	}
	return fmt.Sprintf("%s of job %s in model generation %d", who, h.Job, h.ModelGeneration)
}

// Faults of a header.
var (
	// ErrForeign: the speaker is not of this job, or cannot show that it is.
	ErrForeign = errors.New("not of this job")
	// ErrForbidden: the speaker's role does not make this call.
	ErrForbidden = errors.New("not allowed")
	// ErrReplaced: a later incarnation of the speaker is known.
	ErrReplaced = errors.New("replaced")
	// ErrModelGeneration: the speaker works with a model of another generation.
	ErrModelGeneration = errors.New("another model generation")
)

// MaxSize is the most bytes that a header takes.
const MaxSize = fixedSize + maxText

const (
	fixedSize = 2 + 2*4 + 8 + 8 + 1 + 1
	maxText   = 128
)

// Append appends the header: all numbers little endian, then the job behind its length.
func (h Header) Append(b []byte) []byte {
	if h.Protocol == 0 {
		h.Protocol = Protocol
	}
	b = binary.LittleEndian.AppendUint16(b, h.Protocol)
	b = append(b, byte(h.Role))
	b = binary.LittleEndian.AppendUint32(b, uint32(h.Index))
	b = binary.LittleEndian.AppendUint32(b, uint32(h.Incarnation))
	b = binary.LittleEndian.AppendUint64(b, uint64(h.Master))
	b = binary.LittleEndian.AppendUint64(b, uint64(h.ModelGeneration))
	job := h.Job[:min(len(h.Job), maxText)]
	return append(append(b, byte(len(job))), job...)
}

// Parse reads a header that is all of b. Of a header of another protocol only the protocol is read.
func Parse(b []byte) (Header, error) {
	if len(b) < 2 {
		return Header{}, fmt.Errorf("%w: a header of %d bytes", ErrForeign, len(b))
	}
	h := Header{Protocol: binary.LittleEndian.Uint16(b)}
	if h.Protocol != Protocol {
		return h, fmt.Errorf("%w: it speaks protocol %d, this program %d: all pods of a job run "+
			"one image", ErrForeign, h.Protocol, Protocol)
	}
	if len(b) < fixedSize || len(b) > MaxSize {
		return h, fmt.Errorf("%w: a header of %d bytes", ErrForeign, len(b))
	}
	h.Role = pod.Role(b[2])
	index, incarnation := binary.LittleEndian.Uint32(b[3:]), binary.LittleEndian.Uint32(b[7:])
	master, modelGeneration := binary.LittleEndian.Uint64(b[11:]), binary.LittleEndian.Uint64(b[19:])
	const most = 1 << 31
	if h.Role < pod.Master || h.Role > User || index >= most || incarnation >= most || master >= most ||
		modelGeneration >= 1<<62 {
		return h, fmt.Errorf("%w: an impossible header", ErrForeign)
	}
	h.Index, h.Incarnation, h.Master, h.ModelGeneration = int(index), int(incarnation), int(master),
		int64(modelGeneration)
	length, text := int(b[fixedSize-1]), b[fixedSize:]
	if length != len(text) {
		return h, fmt.Errorf("%w: the header's job has %d bytes, expected %d", ErrForeign, len(text), length)
	}
	h.Job = string(text)
	return h, nil
}

// Admit returns what is wrong with a speaker, nil if nothing: it must be of the job of self, be
// whom its certificate names, and have one of the roles. A master must be the newest that either of
// both has heard.
func Admit(self, speaker Header, proved Name, roles ...pod.Role) error {
	switch {
	case speaker.Job != self.Job:
		return fmt.Errorf("%w: %v speaks to %v", ErrForeign, speaker, self)
	case speaker.Name() != proved:
		return fmt.Errorf("%w: %v speaks, with the certificate of %v", ErrForeign, speaker, proved)
	case !slices.Contains(roles, speaker.Role):
		return fmt.Errorf("%w: %v speaks to %v, which expects %v here", ErrForbidden, speaker, self, roles)
	case speaker.Role == pod.Master && speaker.Incarnation < self.Master:
		return fmt.Errorf("%w: %v speaks, incarnation %d of it was heard already", ErrReplaced, speaker, self.Master)
	case self.Role == pod.Master && self.Incarnation < speaker.Master:
		return fmt.Errorf("%w: %v is called, incarnation %d of it was heard already", ErrReplaced, self, speaker.Master)
	}
	return nil
}

// Expect returns the fault of the answering peer, or nil: it must be admitted, and be the pod that
// was called. Incarnation 0 is any.
func Expect(self, speaker Header, proved Name, called pod.ID, incarnation int) error {
	if err := Admit(self, speaker, proved, called.Role); err != nil {
		return err
	}
	switch {
	case speaker.ID() != called:
		return fmt.Errorf("%w: %v answers for %v", ErrForbidden, speaker, called)
	case incarnation > 0 && speaker.Incarnation < incarnation:
		return fmt.Errorf("%w: %v answers, incarnation %d is expected", ErrReplaced, speaker, incarnation)
	case incarnation > 0 && speaker.Incarnation > incarnation:
		return fmt.Errorf("%w: %v answers, incarnation %d was expected", ErrModelGeneration, speaker, incarnation)
	}
	return nil
}

// SameModelGeneration returns an error unless a speaker works with the model that self works with.
func SameModelGeneration(self, speaker Header) error {
	if speaker.ModelGeneration != self.ModelGeneration {
		return fmt.Errorf("%w: %v speaks of model generation %d, %v is in generation %d",
			ErrModelGeneration, speaker.ID(),
			speaker.ModelGeneration, self.ID(), self.ModelGeneration)
	}
	return nil
}
