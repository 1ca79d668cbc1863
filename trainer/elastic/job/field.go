package job

import (
	"reflect"
	"strings"
)

// Field is the path in JSON of what the flag sets: "worker.request" of --worker_resource_request;
// "" if that is nothing of the Job.
func (f *Flag) Field() string {
	c := NewCommand(Train)
	return pathTo(f.bind(c).at, reflect.ValueOf(c.Job).Elem())
}

// pathTo finds a pointer among the addresses of a struct's fields and theirs. A struct and its
// first field have the same address: they differ by type.
func pathTo(at any, within reflect.Value) string {
	for i := range within.NumField() {
		field := within.Field(i)
		name, _, _ := strings.Cut(within.Type().Field(i).Tag.Get("json"), ",")
		if of := within.Type().Field(i); of.Anonymous && of.Type.Kind() == reflect.Struct &&
			of.IsExported() && name == "" {
			if path := pathTo(at, field); path != "" { // JSON has its fields among the others
				return path
			}
		}
		if name == "" {
			continue
		}
		if field.Addr().Interface() == at {
			return name
		}
		if field.Kind() == reflect.Struct {
			if path := pathTo(at, field); path != "" {
				return name + "." + path
			}
		}
	}
	return ""
}

// Available reports, joined, every field whose flag [Value.Set] would have refused, as asking for
// what this version does not have.
func (j *Job) Available() error {
	var p problems
	c := NewCommand(j.Type)
	c.Job = j
	for i := range flags {
		f := &flags[i]
		if v := f.bind(c); f.Effect == Later || v.only {
			p.check(f.Field() == "" || v.get() == f.Default(j.Type), setting(f.Name, v.get()),
				"not available in this version yet%s", f.Instead)
		}
	}
	return p.err()
}

// Settle makes what was not given fit what was, as --flags of the command line do: no servers are
// the AllReduce strategy, and the other way round; a job that trains nothing has neither; and what
// pods ask for by default is no more than their limits. Given tells whether a flag was.
func (j *Job) Settle(given func(flag string) bool) {
	switch {
	case j.Runs():
		j.Strategy, j.NumPS = AllReduce, 0 // the workers meet as those of a ring do
		if !given("num_workers") {
			j.NumWorkers = max(j.NumWorkers, j.MinWorkers)
		}
		if !given("num_minibatches_per_task") {
			j.NumMinibatchesPerTask = 0
		}
		j.settleGPUs()
	case !j.Trains():
		j.Strategy, j.NumPS = "", 0
	}
	if j.Trains() && !given("distribution_strategy") && given("num_ps_pods") && j.NumPS == 0 {
		j.Strategy = AllReduce
	}
	if j.Strategy == AllReduce && !given("num_ps_pods") {
		j.NumPS = 0
	}
	if j.NumPS > 0 && !given("ps_pod_priority") && j.Master.Priority.Share == 0 {
		// else a worker of another job may preempt them before this job's own workers
		j.PS.Priority = j.Master.Priority
	}
	for role, p := range map[string]*Pod{"master": &j.Master, "ps": &j.PS, "worker": &j.Worker} {
		for name, limit := range p.Limit {
			asked := given(role+"_resource_request") || given(role+"_"+name+"_request")
			if !asked && amount(limit) < amount(p.Request[name]) {
				p.Request[name] = limit
			}
		}
	}
}

// Elastic tells whether the job goes on when some of its workers are taken away: a ring of fewer
// than MinWorkers waits.
func (j *Job) Elastic() bool {
	return j.Strategy != AllReduce || max(1, j.MinWorkers) < j.NumWorkers
}
