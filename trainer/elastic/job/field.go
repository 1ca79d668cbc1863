package job

import (
	"reflect"
	"strings"
)

// Field returns the path in JSON of the field that the flag sets, such as "worker.request" for
// --worker_resource_request; "" if it sets no field of the Job.
func (f *Flag) Field() string { return fields[f.Name] }

// fields are the paths of all flags, by name. They are sought once: every check of a job asks for
// all of them.
var fields = func() map[string]string {
	paths := make(map[string]string)
	c := NewCommand(Train)
	job := reflect.ValueOf(c.Job).Elem()
	for i := range flags {
		paths[flags[i].Name] = pathTo(flags[i].bind(c).at, job)
	}
	return paths
}()

// pathTo returns the path of the field, in a struct or its structs, that has a pointer as its
// address. A struct and its first field have the same address, but different types.
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

// Available returns an error for each field whose value is not available in this version, as
// [Value.Set] does for flags.
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

// Settle adapts the defaults of settings that were not given to those that were, as given reports.
// No servers mean the AllReduce strategy, and the other way round. A job that does not train has
// neither. The default requests of pods do not exceed given limits.
func (j *Job) Settle(given func(flag string) bool) {
	switch {
	case j.Runs():
		j.Strategy, j.NumPS = AllReduce, 0 // the workers form a ring
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
		// otherwise another job's worker may preempt them before this job's own workers
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

// Elastic reports whether the job continues when some of its workers are lost: a ring with fewer
// than MinWorkers waits.
func (j *Job) Elastic() bool {
	return j.Strategy != AllReduce || max(1, j.MinWorkers) < j.NumWorkers
}
