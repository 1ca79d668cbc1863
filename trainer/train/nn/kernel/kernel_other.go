//go:build !amd64

package kernel

func vectorSets() []*set { return nil }

// Pause does nothing.
func Pause() {}
