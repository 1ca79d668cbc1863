package kernel

import "testing"

func TestUse(t *testing.T) {
	if err := Use("mmx"); err == nil {
		t.Fatal("Use(mmx) is accepted")
	}
	if err := Use("generic"); err != nil || Name() != "generic" {
		t.Fatal(err, Name())
	}
}
