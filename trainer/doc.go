// Package trainer is the map of the training system; the code is in the packages below it.
//
//	elasticdl train ──> job.Job ──> master ──Pods──> processes (local)
//	                                  │
//	           ┌──────────────────────┴──────────────────────────┐
//	           │ task.Queue             which records are whose  │ one mutex,
//	           │ pod.Table              who lives, who follows   │ one timer,
//	           │ evaluation.Schedule    what is measured when    │ one executor of actions
//	           │ custody.Servers        who holds the model      │
//	           │ rendezvous.Rendezvous  who is in the ring       │
//	           └──────────────────────┬──────────────────────────┘
//	         gRPC: join, lease, report, heartbeat; arrive, world, recall
//	                                  │
//	      ┌───────────────────────────┴────────────────────────────┐
//	  ParameterServerStrategy                             AllreduceStrategy
//	  worker-0 … worker-n          ps-0 … ps-k            worker-0 ─────> worker-1
//	  records ─> zoo.Engine (nn)   optim on its               ^   mesh, ring   │
//	    gradients ── push ───────> param.Range                │   of gradients v
//	    values   <── pull ───────  (a slice each)         worker-3 <───── worker-2
//	                                                      each: records ─> zoo.Engine, the sum
//	                                                      of all gradients ─> optim on all of it
//
// # Packages
//
// Pure ones decide and compute. They do no I/O but over an io.Reader or io.Writer that they are handed, read no
// clock (now is an argument), start no goroutine, hold no lock and write no log, so
// that a seed replays them. They know nothing of the wire and of the shells.
//
//	job/          what a job is: parsed from flags, to and from JSON, validated
//	task/         shards → tasks → leases → done
//	ledger/       which training records are in a model
//	pod/          the life of pods; what ended one, and what follows from it
//	identity/     who speaks in a job, and who may say what
//	rendezvous/   who is in the ring, with which ranks, and whose state they take
//	timing/       how long the processes of a job wait for each other, and the laws between these times
//	ring/         all-reduce, gather and state transfer over a two-method link
//	custody/      who holds the model, in which life of it, and what follows from a loss
//	evaluation/   when to measure which version; folding of what was measured
//	param/        names and shapes of parameters; which server holds which stretch
//	optim/        SGD, Momentum, Nesterov, Adam, AMSGrad, Adagrad
//	nn/           tensors, tape, layers, losses; nn/kernel/ is its inner loops; nn/kernel/avx/ is the assembly of them, generated
//	recordio/     the file format of training data
//	safetensors/  the file format of trained parameters
//	source/       where a user's program comes from, as a command names it
//	manifest/     what a job is on Kubernetes: its objects, its pods, their names
//
// Models stand between: they are read as examples, and run by the worker.
//
//	zoo/          the built-in models, one file each, and the engine that runs any model like them
//	data/example/ tf.train.Example
//
// The wire is what the roles say to each other, and what proves who says it. Its calls are generated.
//
//	wire/         the calls and messages of a job; generated
//	rpc/          who speaks in a call, who is let in, how long it may take
//	membership/   how a worker joins the job and stays in it: its end of the rendezvous
//	credential/   the job's authority, certificates, mutual TLS on every connection
//
// Shells do: they listen, dial, read files, start processes, and ask the pure ones what is next.
//
//	checkpoint/   the model at rest: commits in a directory, exports; checkpoint/bucket/ opens the directory by its name, in
//	              object stores too; checkpoint/laws/ tests a kind of place
//	outage/       failures of a storage that may go away, and waiting for that
//	prediction/   what was predicted, at rest: parts, and the file that they make
//	data/         readers of training data; data/dataset/ makes it
//	master/       the machines behind gRPC
//	ps/           a parameter server, and the client to all of them
//	mesh/         the connections of one world: a ring's link
//	tcpstore/     PyTorch's TCPStore, by which processes of torch.distributed find each other
//	worker/       lease → read → step → push, or sum with the others → report
//	role/         what every role does, wherever it runs: its main, its plan, its log, its last words
//	agent/        a worker whose engine is a user's program: its place in the rendezvous, its processes' records and state
//	program/      a user's training program: its processes on one node, as torchrun's agent runs them; program/python/ is the package that scripts import
//	local/        the roles as processes of this machine
//	kube/         jobs on Kubernetes as their user has them: submit, status, logs, scale, stop, copy; with those below it the only one that talks to Kubernetes
//	kube/incluster/ the master in its pod: the roles as pods, the state, events, certificates; kube/observe/ reads what the cluster says of pods and Jobs
//	image/        container images, made and pushed without Docker
//	download/     a file over HTTP; source/fetch/ gets a user's program, by it or from a bucket; source/folder/ packs a directory of code
//	logline/      the format of log lines; the order of those of several logs
//	console/      what several processes write: on one stream of the command, and as lines of a log
//
// # Laws
//
// Each pure package states its own in its doc and has them as tests. Together they say:
//
//  1. No record is lost or silently skipped: each record of an epoch is credited once, and
//     the job succeeds only if all of them were. What is predicted of a record is written once. (task, master, prediction)
//  2. No death of a worker or server ends a job by itself; who fails over and over again by its own
//     fault does, and is named. (pod)
//  3. Whoever is alive goes on: nobody waits for a pod that is gone, and no survivor is restarted. (ps, rendezvous, master)
//  4. A gradient is applied once on each server, or refused; wrong ones change nothing. What is credited is on every server, in
//     the life of the model that they are in; where a part of the model is lost, a new life begins, and it is said. (ps, custody, master)
//  5. All members of a ring hold the same bits after every round: parameters, optimizer, averages. A round is in the
//     state of a member whole or not at all; what is credited is in the state of every survivor. (ring, worker)
//  6. What is measured is one version of the model on all records. (evaluation)
//  7. A step's result does not depend on the number of threads, a ring's not on timing. (nn, ring)
//  8. Imports go one way: cmd → shells → models → pure. arch_test.go asserts it.
package trainer
