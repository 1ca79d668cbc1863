package program

import (
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
)

// Std is a choice of standard streams, torchrun's Std.
type Std int

// The values of torchrun's --redirects and --tee.
const (
	None   Std = 0
	Stdout Std = 1
	Stderr Std = 2
	Both   Std = 3
)

// Streams chooses standard streams for each local rank.
type Streams struct {
	all Std
	// if not nil, instead of all; a rank that is missing has None
	byLocal map[int]Std
}

// Of returns the choice for the local rank.
func (s Streams) Of(local int) Std {
	if s.byLocal != nil {
		return s.byLocal[local]
	}
	return s.all
}

// some reports whether a stream is chosen for any local rank.
func (s Streams) some() bool {
	for _, std := range s.byLocal {
		if std != None {
			return true
		}
	}
	return s.byLocal == nil && s.all != None
}

// String returns the text that ParseStreams reads.
func (s Streams) String() string {
	if s.byLocal == nil {
		return strconv.Itoa(int(s.all))
	}
	var parts []string
	for _, local := range slices.Sorted(maps.Keys(s.byLocal)) {
		parts = append(parts, fmt.Sprintf("%d:%d", local, s.byLocal[local]))
	}
	return strings.Join(parts, ",")
}

// ParseStreams parses the value of a flag in torchrun's form: one choice for all local ranks ("3"),
// or one for each that is named ("0:1,1:2"). Empty text means none. Errors name the flag.
func ParseStreams(flag, text string) (Streams, error) {
	if text == "" {
		return Streams{}, nil
	}
	if std, ok := parseStd(text); ok {
		return Streams{all: std}, nil
	}
	s := Streams{byLocal: map[int]Std{}}
	for part := range strings.SplitSeq(text, ",") {
		rank, choice, ok := strings.Cut(part, ":")
		local, err := strconv.Atoi(rank)
		std, known := parseStd(choice)
		if !ok || err != nil || local < 0 || !known {
			return Streams{}, fmt.Errorf("--%s=%s: found %q, expected 0 (none), 1 (stdout), 2 "+
				"(stderr) or 3 (both), or a list such as 0:1,1:2 (local rank:choice)",
				flag, text, part)
		}
		if _, twice := s.byLocal[local]; twice {
			return Streams{}, fmt.Errorf("--%s=%s: local rank %d is named twice: name it once", flag, text, local)
		}
		s.byLocal[local] = std
	}
	return s, nil
}

func parseStd(text string) (Std, bool) {
	if len(text) != 1 || text[0] < '0' || text[0] > '3' {
		return None, false
	}
	return Std(text[0] - '0'), true
}
