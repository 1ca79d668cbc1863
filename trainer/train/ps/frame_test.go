package ps

import (
	"bytes"
	"math"
	"testing"

	"pgregory.net/rapid"

	"github.com/elasticdl/elasticdl/trainer/elastic/identity"
	"github.com/elasticdl/elasticdl/trainer/elastic/ledger"
)

// FuzzFrames: what is parsed is written back as it was, so that one meaning has one form.
func FuzzFrames(f *testing.F) {
	f.Add(request{op: opOpen, length: 100}.appendTo(nil))
	f.Add(request{op: opPush, length: 400, version: 3, epoch: 2, task: 4, from: 32, to: 64, of: 1000}.appendTo(nil))
	f.Add(request{op: opPull, flags: flagAfter | flagWhole, snapshot: 200}.appendTo(nil))
	f.Add(reply{status: statusRefused, length: 12, version: 7}.appendTo(nil))
	f.Add(trailer{torn: true, version: 7}.appendTo(nil))
	f.Fuzz(func(t *testing.T, b []byte) {
		if len(b) >= requestSize {
			if r, err := parseRequest(b[:requestSize]); err == nil && !bytes.Equal(r.appendTo(nil), b[:requestSize]) {
				t.Errorf("% x is %+v", b[:requestSize], r)
			}
		}
		if len(b) >= replySize {
			if r, err := parseReply(b[:replySize]); err == nil && !bytes.Equal(r.appendTo(nil), b[:replySize]) {
				t.Errorf("% x is %+v", b[:replySize], r)
			}
		}
		if len(b) >= trailerSize {
			if r, err := parseTrailer(b[:trailerSize]); err == nil && !bytes.Equal(r.appendTo(nil), b[:trailerSize]) {
				t.Errorf("% x is %+v", b[:trailerSize], r)
			}
		}
	})
}

func TestFrames(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		number := rapid.Int64Min(0)
		r := request{op: rapid.SampledFrom([]op{opOpen, opPush, opPull}).Draw(t, "op")}
		switch r.op {
		case opOpen:
			r.length = rapid.Uint64Range(1, identity.MaxSize).Draw(t, "length")
		case opPush:
			r.length, r.version = rapid.Uint64().Draw(t, "length"), number.Draw(t, "version")
			r.epoch, r.task = rapid.IntRange(0, math.MaxInt32).Draw(t, "epoch"),
				rapid.Int64Range(0, ledger.MaxTasks-1).Draw(t, "task")
			r.from = number.Draw(t, "from")
			r.to = rapid.Int64Range(r.from, math.MaxInt64).Draw(t, "to")
			r.of = rapid.Int64Range(r.to, math.MaxInt64).Draw(t, "of")
		case opPull:
			r.flags, r.snapshot = rapid.Uint32Range(0, flagsEnd-1).Draw(t, "flags"), number.Draw(t, "snapshot")
		}
		b := r.appendTo(nil)
		if got, err := parseRequest(b); err != nil || len(b) != requestSize || got != r {
			t.Fatalf("%+v became %+v, %v", r, got, err)
		}
		// One byte of what is fixed, changed.
		at := rapid.SampledFrom([]int{0, 1, 2, 3, 4, 5, 7}).Draw(t, "at")
		b[at] ^= byte(rapid.IntRange(1, 255).Draw(t, "by"))
		if got, err := parseRequest(b); err == nil {
			t.Fatalf("byte %d changed: %+v", at, got)
		}
	})
}

func TestImpossibleFrames(t *testing.T) {
	for name, r := range map[string]request{
		"no op":            {},
		"unknown op":       {op: opPull + 1},
		"pull with values": {op: opPull, length: 4},
		"pull with task":   {op: opPull, task: 1},
		"unknown flag":     {op: opPull, flags: flagsEnd},
		"push with flags":  {op: opPush, flags: flagAfter},
		"negative version": {op: opPush, version: -1},
		"negative epoch":   {op: opPush, epoch: -1},
		"negative records": {op: opPush, from: 2, to: 1},
		"more than all":    {op: opPush, epoch: 1, to: 2, of: 1},
		"too many tasks":   {op: opPush, epoch: 1, task: ledger.MaxTasks},
		"nobody opens":     {op: opOpen},
		"a long identity":  {op: opOpen, length: identity.MaxSize + 1},
	} {
		if got, err := parseRequest(r.appendTo(nil)); err == nil {
			t.Errorf("%s: %+v", name, got)
		}
	}
	for name, r := range map[string]reply{
		"no status":        {},
		"unknown status":   {status: statusEnd},
		"long text":        {status: statusRefused, length: maxText + 1},
		"negative version": {status: statusOK, version: -1},
	} {
		if got, err := parseReply(r.appendTo(nil)); err == nil {
			t.Errorf("%s: %+v", name, got)
		}
	}
}
