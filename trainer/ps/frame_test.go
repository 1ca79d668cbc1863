package ps

import (
	"bytes"
	"testing"

	"pgregory.net/rapid"
)

// FuzzFrames: what is parsed is written back as it was, so that one meaning has one form.
func FuzzFrames(f *testing.F) {
	f.Add(request{op: opOpen, session: 1 << 60}.appendTo(nil))
	f.Add(request{op: opInit, length: 400, version: 3}.appendTo(nil))
	f.Add(request{op: opPush, length: 400, version: 3, lease: 4, done: 64}.appendTo(nil))
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
		r := request{op: rapid.SampledFrom([]op{opOpen, opInit, opPush, opPull}).Draw(t, "op")}
		switch r.op {
		case opOpen:
			r.session = rapid.Uint64().Draw(t, "session")
		case opInit:
			r.length, r.version = rapid.Uint64().Draw(t, "length"), number.Draw(t, "version")
		case opPush:
			r.length, r.version = rapid.Uint64().Draw(t, "length"), number.Draw(t, "version")
			r.lease, r.done = number.Draw(t, "lease"), number.Draw(t, "done")
		case opPull:
			r.flags, r.snapshot = rapid.Uint32Range(0, flagsEnd-1).Draw(t, "flags"), number.Draw(t, "snapshot")
		}
		b := r.appendTo(nil)
		if got, err := parseRequest(b); err != nil || len(b) != requestSize || got != r {
			t.Fatalf("%+v became %+v, %v", r, got, err)
		}
		// One byte of what is fixed, changed.
		at := rapid.SampledFrom([]int{0, 1, 2, 3, 4, 5, 7, 12, 15}).Draw(t, "at")
		b[at] ^= byte(rapid.IntRange(1, 255).Draw(t, "by"))
		if got, err := parseRequest(b); err == nil {
			t.Fatalf("byte %d changed: %+v", at, got)
		}
	})
}

func TestImpossibleFrames(t *testing.T) {
	for name, r := range map[string]request{
		"no op":             {},
		"unknown op":        {op: opEnd},
		"pull with values":  {op: opPull, length: 4},
		"pull with lease":   {op: opPull, lease: 1},
		"unknown flag":      {op: opPull, flags: flagsEnd},
		"push with flags":   {op: opPush, flags: flagAfter},
		"push with session": {op: opPush, session: 1},
		"negative version":  {op: opPush, version: -1},
		"negative done":     {op: opPush, done: -1},
		"open with values":  {op: opOpen, length: 4},
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
