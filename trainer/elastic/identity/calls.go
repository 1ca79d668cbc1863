package identity

import "github.com/elasticdl/elasticdl/trainer/elastic/pod"

// Call holds the requirements for the caller of an RPC.
type Call struct {
	Roles           []pod.Role
	ModelGeneration bool // the caller's must be the receiver's
}

// Calls is every call of the wire that needs an identity, by its gRPC name, and who may make it.
var Calls = map[string]Call{
	"/elasticdl.Master/Join":         {Roles: []pod.Role{pod.PS, pod.Worker}},
	"/elasticdl.Master/GetTask":      {Roles: []pod.Role{pod.Worker}, ModelGeneration: true},
	"/elasticdl.Master/ReportTask":   {Roles: []pod.Role{pod.Worker}, ModelGeneration: true},
	"/elasticdl.Master/Heartbeat":    {Roles: []pod.Role{pod.PS, pod.Worker}},
	"/elasticdl.Master/Rendezvous":   {Roles: []pod.Role{pod.Worker}},
	"/elasticdl.Master/Vouch":        {Roles: []pod.Role{pod.Worker}},
	"/elasticdl.Master/ReportStacks": {Roles: []pod.Role{pod.Worker}},
	"/elasticdl.Master/ReportNotice": {Roles: []pod.Role{pod.PS, pod.Worker}},

	"/elasticdl.Job/Status": {Roles: []pod.Role{User}},
	"/elasticdl.Job/Scale":  {Roles: []pod.Role{User}},
	"/elasticdl.Job/Stop":   {Roles: []pod.Role{User}},
	"/elasticdl.Job/Stacks": {Roles: []pod.Role{User}},
	"/elasticdl.Job/Watch":  {Roles: []pod.Role{User}},

	"/elasticdl.ParameterServer/Declare":  {Roles: []pod.Role{pod.Worker}, ModelGeneration: true},
	"/elasticdl.ParameterServer/Progress": {Roles: []pod.Role{pod.Master}, ModelGeneration: true},
	"/elasticdl.ParameterServer/Control":  {Roles: []pod.Role{pod.Master}},
}

// Open lists the calls that need no header. Their answers have none either.
var Open = map[string]bool{
	"/elasticdl.Certification/Certify": true, // which gives one
}
