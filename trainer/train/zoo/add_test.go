package zoo

import (
	"slices"
	"strings"
	"testing"
)

// The user's models are found before the built-in ones, and incomplete ones are refused, all at
// once.
func TestAdd(t *testing.T) {
	defer func(before []*Model) { added = before }(added)
	mine := *mnistMLP
	other := *mnistMLP
	other.Name = "other"
	if err := Add(&other, &mine); err != nil {
		t.Fatal(err)
	}
	for def, want := range map[string]*Model{"mnist.mnist_mlp.custom_model": &mine, "mnist_mlp": &mine,
		"mnist.other": &other, "mnist_functional_api": mnistFunctional} {
		if got, err := Lookup(def); err != nil || got != want {
			t.Errorf("Lookup(%q) = %p, %v, want %p", def, got, err, want)
		}
	}
	want := []string{"mnist.other.custom_model", "mnist.mnist_mlp.custom_model",
		"mnist.mnist_functional_api.custom_model"}
	if names := Names(); !slices.Equal(names[:3], want) || len(names) != len(models)+1 {
		t.Errorf("names %q, want %q first, each once", names, want)
	}
	err := Add(nil, &mine, &Model{Package: "p", Name: "n", Class: "c"})
	if err == nil {
		t.Fatal("no error of wrong models")
	}
	for _, want := range []string{"model 1 of 3 is nil",
		`"mnist.mnist_mlp.custom_model" is given twice`, `"p.n.c" has no New`, `"p.n.c" has no Feed`, "no Metrics"} {
		if !strings.Contains(err.Error(), want) {
			t.Errorf("%v, want %q in it", err, want)
		}
	}
}
