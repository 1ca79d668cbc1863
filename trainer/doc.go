// Package trainer is the map of the training system; the code is in the packages below it.
//
//	elasticdl train ──> job.Job ──> master ──Pods──> processes (local)
//	                                  │
//	           ┌──────────────────────┴────────────────────────────────────┐
//	           │ task.Queue             which worker has which records     │ one mutex,
//	           │ pod.Table              which pods run, which are replaced │ one timer,
//	           │ evaluation.Schedule    which version is measured when     │ one executor of actions
//	           │ custody.Servers        which servers hold the model       │
//	           │ rendezvous.Rendezvous  which workers form the ring        │
//	           └──────────────────────┬────────────────────────────────────┘
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
// The doc.go of each folder describes what belongs there. Imports go one way:
//
//	elastic <- wire <- store <- master, train, run <- runtime <- cmd
//
// train and run never import each other, and master imports neither. Their common packages are in
// the folders below them.
//
//	elastic/    decisions: pure state machines, which a seed replays
//	  elastic/job/ elastic/source/ elastic/task/ elastic/leases/ elastic/ledger/ elastic/pod/
//	  elastic/rendezvous/ elastic/custody/ elastic/supervise/ elastic/evaluation/ elastic/verdict/
//	  elastic/lifecycle/ elastic/launch/ elastic/admission/ elastic/journal/
//	  elastic/timing/ elastic/identity/ elastic/param/ elastic/stacks/ elastic/stuck/
//	  elastic/book/ elastic/audit/ elastic/curve/ elastic/goodput/ elastic/secret/
//	  elastic/price/
//	wire/       communication of the roles: the calls and messages of a job, generated
//	  wire/rpc/         connections, identity of the caller, authorization, deadlines
//	  wire/credential/  the job's authority, certificates, mutual TLS on every connection
//	  wire/membership/  a worker's side of joining the job and of the rendezvous
//	store/      stored data: checkpoints, exported models, predictions, scalars for TensorBoard
//	  store/checkpoint/ store/checkpoint/laws/ store/bucket/ store/safetensors/ store/prediction/
//	  store/outage/ store/tensorboard/
//	master/     the state machines behind gRPC: one mutex, one timer, one executor of actions
//	train/      models in Go
//	  train/worker/ train/ps/ train/ring/ train/mesh/ train/zoo/ train/nn/ train/nn/kernel/
//	  train/nn/kernel/avx/ train/optim/ train/data/ train/data/dataset/ train/data/example/
//	  train/recordio/
//	run/        users' programs
//	  run/agent/ run/program/ run/python/ run/tcpstore/ run/fetch/ run/folder/
//	runtime/    where the roles run: processes of one machine, or pods of Kubernetes
//	  runtime/role/ runtime/local/ runtime/kube/ runtime/kube/clientset/ runtime/kube/incluster/
//	  runtime/kube/observe/ runtime/manifest/ runtime/demand/ runtime/image/ runtime/metrics/
//	  runtime/notice/
//	console/    output of several processes, on one stream of the command or as lines of a log
//	logline/    the format of log lines
//	download/   download of a file over HTTP
//
// # Laws
//
// Each pure package states its own laws in its doc, and tests them. The laws of the whole system:
//
//  1. No record is lost or silently skipped: each record of an epoch is credited once, and the job
//     succeeds only if all of them were. The prediction for a record is written once. (task,
//     master, prediction)
//  2. The loss of a worker or server never ends a job. A pod that fails again and again by its own
//     fault does, and the job's error names it. (pod)
//  3. Survivors continue: no process waits for a lost pod, and no survivor is restarted. (ps,
//     rendezvous, master)
//  4. A gradient is applied once on each server, or refused; a refused one changes nothing. Every
//     server has the credited records of the current model generation. When a part of the model is
//     lost, a new generation begins, and the loss is reported. (ps, custody, master)
//  5. All members of a ring hold the same bits after every round: parameters, optimizer, averages.
//     A round is in the state of a member whole or not at all; what is credited is in the state of
//     every survivor. (ring, worker)
//  6. An evaluation measures one version of the model on all records. (evaluation)
//  7. A step's result does not depend on the number of threads, a ring's not on timing. (nn, ring)
//  8. Imports go one way, by the folders. arch_test.go asserts it.
package trainer
