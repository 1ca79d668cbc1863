// Package until waits for other programs, which tell nobody when they are ready.
package until

import (
	"testing"
	"time"
)

// limit is the time that a program has to start, or to show what it has read.
const limit = 2 * time.Minute

// Nil repeats try until it returns no error, and fails the test after two minutes.
func Nil(t testing.TB, what string, try func() error) {
	t.Helper()
	for began := time.Now(); ; time.Sleep(100 * time.Millisecond) {
		err := try()
		if err == nil {
			return
		}
		if time.Since(began) > limit {
			t.Fatalf("%s: not within %v: %v", what, limit, err)
		}
	}
}
