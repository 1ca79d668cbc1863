package curve

import (
	"encoding/json"
	"fmt"
	"math"
	"reflect"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"
)

// dumb is a curve that keeps everything.
type dumb struct {
	times   []int64 // that count, in milliseconds
	samples []Sample
}

// near reports whether two means are the same but for rounding.
func near(a, b float64) bool {
	return math.IsNaN(a) == math.IsNaN(b) && (math.IsNaN(a) || math.Abs(a-b) <= 1e-3*(1+math.Abs(a)))
}

// check compares a curve with one that keeps everything.
func (d *dumb) check(t *rapid.T, c *Curve) {
	points, at := c.Points(), 0
	if len(points) == 0 || len(points) > Most {
		t.Fatalf("%d points", len(points))
	}
	start := points[0].Time
	for i, p := range points {
		if i > 0 && !p.Time.After(points[i-1].Time) {
			t.Fatalf("point %d at %v, after %v", i, p.Time, points[i-1].Time)
		}
		want := Point{Time: p.Time, Loss: math.NaN(), Workers: math.MaxInt}
		n, losses, sum := 0, 0, 0.0
		for ; at < len(d.times) && d.times[at] < p.Time.UnixMilli(); at++ {
			s := d.samples[at]
			n++
			want.Records, want.Workers, want.Rate = s.Records, min(want.Workers, s.Workers), want.Rate+s.Rate
			if !math.IsNaN(s.Loss) {
				losses, sum = losses+1, sum+s.Loss
			}
		}
		if n == 0 {
			t.Fatalf("point %d at %v has no sample", i, p.Time.Sub(start))
		}
		if want.Rate /= float64(n); losses > 0 {
			want.Loss = sum / float64(losses)
		}
		if p.Records != want.Records || p.Workers != want.Workers || !near(p.Rate, want.Rate) || !near(p.Loss,
			want.Loss) {
			t.Fatalf("point %d of %d samples: %+v, want %+v", i, n, p, want)
		}
	}
	if at != len(d.times) {
		t.Fatalf("%d of %d samples are in no point", len(d.times)-at, len(d.times))
	}
}

// The laws of a curve, with a twin that is saved and restored before each burst.
func TestModel(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var c Curve
		var all dumb
		now, last := time.UnixMilli(1_000_000), int64(0)
		longest := rapid.SampledFrom([]int64{2000, 60_000, 3_600_000}).Draw(t, "longest")
		for range rapid.IntRange(1, 8).Draw(t, "bursts") {
			twin := Restore(throughJSON(t, c.Snapshot()))
			for range rapid.IntRange(1, 120).Draw(t, "samples") {
				now = now.Add(time.Duration(rapid.Int64Range(-100, longest).Draw(t, "pause")) * time.Millisecond)
				s := Sample{Records: rapid.Int64Range(0, 1e9).Draw(t, "records"), Rate: rapid.Float64Range(0,
					1e6).Draw(t, "rate"),
					Loss: math.NaN(), Workers: rapid.IntRange(0, 1000).Draw(t, "workers")}
				if rapid.Bool().Draw(t, "loss") {
					s.Loss = rapid.Float64Range(-10, 10).Draw(t, "value")
				}
				c.Observe(s, now)
				twin.Observe(s, now)
				last = max(last, now.UnixMilli(), 1_000_000)
				all.times, all.samples = append(all.times, last), append(all.samples, s)
				if rapid.IntRange(0, 9).Draw(t, "evaluated") == 0 {
					m := map[string]float64{"accuracy": s.Rate, "auc": math.Inf(1)}
					c.Measure(m, now)
					twin.Measure(m, now)
				}
			}
			if !reflect.DeepEqual(twin, c) {
				t.Fatalf("restored: %+v\nwant %+v", twin, c)
			}
		}
		all.check(t, &c)
		if names := c.Metrics(); len(names) > 1 || len(c.Values("accuracy")) > MostMeasured {
			t.Fatalf("%v: %d values", names, len(c.Values("accuracy")))
		}
	})
}

func throughJSON(t *rapid.T, s Snapshot) (again Snapshot) {
	text, err := json.Marshal(s)
	if err == nil {
		err = json.Unmarshal(text, &again)
	}
	if err != nil {
		t.Fatal(err)
	}
	return again
}

// A curve of a long job has all of it, and keeps its limits with the longest numbers there are.
func TestBounds(t *testing.T) {
	var c Curve
	now := time.UnixMilli(0)
	for i := range 400_000 {
		now = now.Add(time.Second)
		rate, loss := math.MaxFloat32, -1.2345678e-38
		if i%2 == 0 {
			rate, loss = 1.2345678e-30, -math.MaxFloat32
		}
		c.Observe(Sample{Records: math.MaxInt64 - int64(i), Rate: rate, Loss: loss, Workers: 1e6}, now)
		if i%1000 == 0 {
			m := make(map[string]float64)
			for n := range 9 {
				m[fmt.Sprint(n, strings.Repeat("x", 39))] = loss
			}
			m[strings.Repeat("\x00", 10)] = 1
			c.Measure(m, now)
		}
	}
	points := c.Points()
	if len(points) <= Most/2 || len(points) > Most || points[0].Time.After(time.UnixMilli(0).Add(2*c.Every())) ||
		points[len(points)-1].Time.Before(now) || points[len(points)-1].Records != math.MaxInt64-399_999 {
		t.Errorf("%d points each %v, from %v to %v", len(points), c.Every(), points[0].Time,
			points[len(points)-1].Time)
	}
	if names := c.Metrics(); len(names) != MostNames || len(c.Values(names[0])) > MostMeasured ||
		len(c.Values(names[0])) < MostMeasured/2 || len(c.Values("another")) > 0 {
		t.Errorf("%q: %d values", names, len(c.Values(names[0])))
	}
	text, err := json.Marshal(c.Snapshot())
	if err != nil || len(text) > MostBytes {
		t.Errorf("%d bytes: %v", len(text), err)
	}
	t.Logf("%d bytes", len(text))
}

// A job that rests has no points for that time, and continues after it.
func TestRest(t *testing.T) {
	var c Curve
	c.Observe(Sample{Records: 1, Loss: math.NaN()}, time.UnixMilli(0))
	c.Observe(Sample{Records: 2, Loss: math.NaN()}, time.UnixMilli(0).Add(1000*time.Hour))
	c.Observe(Sample{Records: 3, Loss: math.Inf(1)}, time.UnixMilli(0))
	p := c.Points()
	if len(p) != 2 || p[1].Time.Sub(p[0].Time) != 1000*time.Hour || p[1].Records != 3 || !math.IsNaN(p[1].Loss) {
		t.Errorf("%+v", p)
	}
	var none Curve
	if len(none.Points()) > 0 || none.Every() != 0 || none.Metrics() != nil {
		t.Errorf("%+v", none)
	}
}

// A snapshot of another version, or a damaged one, makes a curve that keeps its limits.
func FuzzRestore(f *testing.F) {
	f.Add(`{"start":5,"every":1000,"slots":[0,1],"records":[1,2],"workers":[1,1],"rates":[1,2],"samples":[1,1],` +
		`"losses":[0,1],"lossy":[0,1],"metrics":[{"name":"a","slots":[0],"values":[1]}]}`)
	f.Add(`{"every":1000,"slots":[9223372036854775807,9223372036854775807],"records":[1,2],"workers":[1,1],` +
		`"rates":[1,2],"samples":[1,1],"losses":[0,1],"lossy":[0,1]}`)
	f.Fuzz(func(t *testing.T, text string) {
		var s Snapshot
		if json.Unmarshal([]byte(text), &s) != nil {
			return
		}
		c := Restore(s)
		c.Observe(Sample{Records: 1, Loss: 1}, time.UnixMilli(1))
		c.Measure(map[string]float64{"auc": 1}, time.UnixMilli(1))
		points := c.Points()
		for i, p := range points {
			if i > 0 && !p.Time.After(points[i-1].Time) {
				t.Errorf("point %d at %v, after %v", i, p.Time, points[i-1].Time)
			}
		}
		again, err := json.Marshal(c.Snapshot())
		if err != nil || len(again) > MostBytes || len(points) == 0 || len(points) > Most {
			t.Errorf("%d points, %d bytes: %v", len(points), len(again), err)
		}
	})
}
