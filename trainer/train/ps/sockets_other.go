//go:build !linux

package ps

import "net"

func wakeAt(net.Conn, int) {}

// direct has no values.
type direct struct{}

func newDirect(net.Conn) *direct { return nil }

func (*direct) send(*store, int, int, int64, int) (bool, error) { panic("there is none") }
