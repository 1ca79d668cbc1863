package mesh

import "testing"

func FuzzHello(f *testing.F) {
	f.Add(hello{1, 2, 3, 1, 0, 2}.append(nil))
	f.Add(hello{1 << 40, 0, 1 << 30, 1000, 999, 1 << 20}.append(nil))
	f.Add(make([]byte, helloSize))
	f.Fuzz(func(t *testing.T, b []byte) {
		if len(b) < helloSize {
			return
		}
		b = b[:helloSize]
		h, err := parseHello(b)
		if err == nil && string(h.append(nil)) != string(b) {
			t.Errorf("% x is read as %+v", b, h)
		}
	})
}

func FuzzAnswer(f *testing.F) {
	f.Add(answer{welcome, 7}.append(nil))
	f.Add(answer{crowded, 0}.append(nil))
	f.Add(make([]byte, answerSize))
	f.Fuzz(func(t *testing.T, b []byte) {
		if len(b) < answerSize {
			return
		}
		b = b[:answerSize]
		a, err := parseAnswer(b)
		if err == nil && string(a.append(nil)) != string(b) {
			t.Errorf("% x is read as %+v", b, a)
		}
	})
}

func TestHelloOfAnotherOrder(t *testing.T) {
	b := hello{1, 2, 3, 1, 0, 2}.append(nil)
	if _, err := parseHello(b); err != nil {
		t.Fatal(err)
	}
	b[6], b[7] = b[7], b[6]
	if _, err := parseHello(b); err == nil {
		t.Error("a machine of another order of bytes is welcome")
	}
}
