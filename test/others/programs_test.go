//go:build torch

package others_test

import "regexp"

// program is a training program that others wrote, and how it is run here.
type program struct {
	name string
	// in its repository, or the name of a module of Python
	path string
	// directory of -sources, or "" if the program is in a package of Python
	source string
	// files and directories of the source that the program consists of
	files []string
	// arguments of Python: {data} is the directory of the data, {dir} that of the run
	args []string
	// what it needs to run on CPUs and with that data
	edits []edit
	// lines that our pages ask for, for elasticdl only
	elastic []edit
	// files of our own
	adds map[string]string
	// links into the directory of the data
	links map[string]string
	// files that it writes as a checkpoint; "" if the package keeps its state
	checkpoint string
	// finds what the program prints about its result; the last one counts
	result *regexp.Regexp
	// undisturbed it is a program of one process
	alone bool
}

// edit replaces a pattern in a file of the program.
type edit struct{ file, pattern, with string }

var programs = []program{
	{
		name:   "multigpu",
		path:   "examples/distributed/ddp-tutorial-series/multigpu_torchrun.py",
		source: "examples",
		files: []string{"distributed/ddp-tutorial-series/multigpu_torchrun.py",
			"distributed/ddp-tutorial-series/datautils.py"},
		args: []string{"multigpu_torchrun.py", "60", "2", "--batch_size=4"},
		edits: []edit{
			{"multigpu_torchrun.py", `^    torch.cuda.set_device.*\n`, ""},
			{"multigpu_torchrun.py", `"nccl"`, `"gloo"`},
			{"multigpu_torchrun.py", `\.to\(self.gpu_id\)`, `.to("cpu")`},
			{"multigpu_torchrun.py", `, device_ids=\[self.gpu_id\]`, ""},
			{"multigpu_torchrun.py", `f"cuda:.*"`, `"cpu"`},
		},
		checkpoint: "snapshot.pt",
		result:     regexp.MustCompile(`(Epoch 5[0-9]) \| Training snapshot`),
	},
	{
		name:   "minGPT",
		path:   "examples/distributed/minGPT-ddp",
		source: "examples",
		files:  []string{"distributed/minGPT-ddp/mingpt"},
		args: []string{"mingpt/main.py", "data_config.path={data}/input.txt", "data_config.block_size=32",
			"data_config.truncate=0.05", "gpt_config.n_layer=2", "gpt_config.n_head=2", "gpt_config.n_embd=32",
			"trainer_config.max_epochs=6", "trainer_config.batch_size=32", "trainer_config.data_loader_workers=1",
			"trainer_config.save_every=1", "trainer_config.use_amp=False"},
		edits: []edit{
			{"mingpt/main.py", `if not verify_min_gpu_count.*:`, `if False:`},
			{"mingpt/main.py", `^    acc = .*\n(    .*\n)*    torch.accelerator.set_device_index.*\n`,
				"    init_process_group(\"gloo\")\n"},
			{"mingpt/trainer.py", `torch.device\(f.*\)$`, `torch.device("cpu")`},
			{"mingpt/trainer.py", `\.to\(self.local_rank\)`, ``},
			{"mingpt/trainer.py", `, device_ids=\[self.local_rank\]`, ""},
		},
		checkpoint: "gpt_snapshot.pt",
		result:     regexp.MustCompile(`Eval Loss ([0-9.]+)`),
	},
	{
		name:   "nanoGPT",
		path:   "nanoGPT/train.py",
		source: "nanoGPT",
		files:  []string{"train.py", "model.py", "configurator.py"},
		args:   []string{"train.py", "elastic.py"},
		edits: []edit{
			{"train.py", `f'cuda:\{ddp_local_rank\}'`, `'cpu'`},
			{"train.py", `^    torch.cuda.set_device.*\n`, ""},
			{"train.py", `, device_ids=\[ddp_local_rank\]`, ""},
		},
		// its own way of settings: a file of Python
		adds: map[string]string{"elastic.py": `import os
out_dir = 'out'
init_from = 'resume' if os.path.exists('out/ckpt.pt') else 'scratch'
dataset = 'characters'
eval_interval, eval_iters, log_interval = 50, 20, 10
gradient_accumulation_steps, batch_size, block_size = 6, 8, 64
n_layer, n_head, n_embd = 2, 4, 64
max_iters = lr_decay_iters = 2500
warmup_iters, learning_rate = 50, 1e-3
backend, device, dtype, compile = 'gloo', 'cpu', 'float32', False
`},
		links:      map[string]string{"data/characters": "characters"},
		checkpoint: "out/ckpt.pt",
		result:     regexp.MustCompile(`val loss ([0-9.]+)`),
	},
	{
		name:   "accelerate",
		path:   "accelerate/examples/complete_cv_example.py",
		source: "accelerate",
		files:  []string{"examples/complete_cv_example.py"},
		args: []string{"complete_cv_example.py", "--data_dir={data}/pets", "--cpu", "--checkpointing_steps=epoch",
			"--output_dir=saved"},
		edits: []edit{
			{"complete_cv_example.py", `num_workers=4`, `num_workers=1`},
			{"complete_cv_example.py", `"resnet50d", pretrained=True`, `"resnet10t", pretrained=False`},
			{"complete_cv_example.py", `"num_epochs": 3(.*)"batch_size": 64, "image_size": 224`,
				`"num_epochs": 6$1"batch_size": 16, "image_size": 64`},
			{"complete_cv_example.py", `^    training_function\(config, args\)`,
				"    saved = os.scandir(args.output_dir) if os.path.isdir(args.output_dir) else []\n" +
					"    args.resume_from_checkpoint = max((d.path for d in saved), key=os.path.getctime, default=None)\n" +
					"    training_function(config, args)"},
		},
		checkpoint: "saved/*",
		result:     regexp.MustCompile(`epoch \d+: ([0-9.]+)`),
	},
	{
		name:   "run_clm",
		path:   "transformers/examples/pytorch/language-modeling/run_clm.py",
		source: "transformers",
		files:  []string{"examples/pytorch/language-modeling/run_clm.py"},
		args:   runCLM,
		edits: []edit{
			{"run_clm.py", `(train\(resume_from_checkpoint=)checkpoint\)`, `${1}newest(training_args.output_dir))`},
			{"run_clm.py", `^def main\(\):`, newestCheckpoint + "def main():"},
		},
		checkpoint: "out/checkpoint-*/trainer_state.json",
		result:     regexp.MustCompile(`'loss': '?([0-9.]+)`),
	},
	{
		name:   "ElasticTrainer",
		path:   "transformers/examples/pytorch/language-modeling/run_clm.py with ElasticTrainer",
		source: "transformers",
		files:  []string{"examples/pytorch/language-modeling/run_clm.py"},
		args:   runCLM,
		elastic: []edit{
			{"run_clm.py", `^import datasets\n`,
				"import elasticdl\nfrom elasticdl.integrations.transformers import ElasticTrainer\n$0"},
			{"run_clm.py", `^def main\(\):\n`, "$0    elasticdl.checkpoint(\"state\", every=100)\n    elasticdl.init()\n"},
			{"run_clm.py", `trainer = Trainer\(`, "trainer = ElasticTrainer("},
		},
		result: regexp.MustCompile(`'loss': '?([0-9.]+)`),
	},
	{
		name:   "timm",
		path:   "pytorch-image-models/train.py",
		source: "pytorch-image-models",
		files:  []string{"train.py", "timm"},
		args: []string{"train.py", "--data-dir={data}/folders", "--model=resnet10t", "--num-classes=10",
			"--img-size=32", "--device=cpu", "--batch-size=16", "--workers=1", "--epochs=6", "--lr=0.05",
			"--warmup-epochs=0", "--cooldown-epochs=0", "--no-aug", "--experiment=tiny", "--output=out",
			"--resume=out/tiny/last.pth.tar"},
		edits: []edit{
			{"train.py", `^    if args.resume:\n        resume_epoch`,
				"    if os.path.exists(args.resume):\n        resume_epoch"},
			{"train.py", `device_ids=\[device\], `, ""},
		},
		checkpoint: "out/tiny/last.pth.tar",
		result:     regexp.MustCompile(`Test: .*Acc@1: +[0-9.]+ \( *([0-9.]+)\)`),
	},
	{
		name:   "open_clip",
		path:   "open_clip/src/open_clip_train",
		source: "open_clip",
		files:  []string{"src/open_clip", "src/open_clip_train"},
		args: []string{"-m", "open_clip_train.main", "--dataset-type=synthetic", "--train-num-samples=1600",
			"--model=local-dir:{dir}/tiny", "--device=cpu", "--batch-size=8", "--workers=1", "--epochs=6",
			"--resume=latest", "--save-most-recent", "--save-frequency=0", "--name=tiny",
			"--precision=fp32", "--log-every-n-steps=20"},
		edits: []edit{{"open_clip_train/main.py", `device_ids=\[device\], `, ""}},
		adds: map[string]string{"tiny/open_clip_config.json": `{"model_cfg": {"embed_dim": 32,
  "vision_cfg": {"image_size": 32, "layers": 2, "width": 64, "patch_size": 8, "head_width": 32},
  "text_cfg": {"context_length": 77, "vocab_size": 49408, "width": 32, "heads": 2, "layers": 1}},
 "preprocess_cfg": {"mean": [0.5, 0.5, 0.5], "std": [0.5, 0.5, 0.5]}}`},
		checkpoint: "logs/tiny/checkpoints/epoch_latest.pt",
		result:     regexp.MustCompile(`Train Epoch: 5 \[.*Loss: [0-9.]+ \(([0-9.]+)\)`),
	},
	{
		name:   "lightning",
		path:   "lightning/examples/pytorch/basics/backbone_image_classifier.py",
		source: "pytorch-lightning",
		files:  []string{"examples/pytorch/basics/backbone_image_classifier.py"},
		args: []string{"backbone_image_classifier.py", "--trainer.max_epochs=6", "--trainer.accelerator=cpu",
			"--trainer.devices=2", "--trainer.strategy=ddp",
			"--trainer.default_root_dir={dir}", "--trainer.enable_progress_bar=false", "--trainer.logger=false"},
		edits: []edit{
			{"backbone_image_classifier.py", `path.join\(path.dirname\(__file__\), .*"Datasets"\)`, `"Datasets"`},
		},
		elastic: []edit{
			{"backbone_image_classifier.py", `^import torch\n`,
				"${0}import elasticdl\nfrom elasticdl.integrations.lightning import fit\n"},
			{"backbone_image_classifier.py", `^def cli_main\(\):\n`,
				"$0    elasticdl.checkpoint(\"state\", every=500)\n    elasticdl.init()\n" +
					"    import sys\n    sys.argv += ['--trainer.devices=1', '--trainer.strategy=" +
					`{"class_path": "elasticdl.integrations.lightning.ElasticStrategy"}` + "']\n"},
			{"backbone_image_classifier.py", `cli.trainer.fit\(.*\)`,
				`fit(cli.trainer, cli.model, cli.datamodule.mnist_train, 32, val_dataloaders=cli.datamodule.val_dataloader())`},
		},
		links:  map[string]string{"Datasets/MNIST": "MNIST", "data/MNIST": "MNIST"},
		result: regexp.MustCompile(`test_loss\W+([0-9.]+)`),
	},
	{
		name:   "FSDP2",
		path:   "examples/distributed/FSDP2/example.py",
		source: "examples",
		files: []string{"distributed/FSDP2/example.py", "distributed/FSDP2/model.py", "distributed/FSDP2/checkpoint.py",
			"distributed/FSDP2/utils.py"},
		args: []string{"example.py"},
		edits: []edit{
			{"example.py", `if not verify_min_gpu_count\(min.*:`, "if False:"},
			{"example.py", `, device_id=device`, ""},
			{"example.py", `range\(10\)`, "range(250)"},
			{"example.py", `^        model.reset_parameters\(\)\n`,
				"$0        for layer in model.layers:\n            layer.reset_parameters()\n"},
			{"example.py", `model\(x\).sum\(\)`, "model(x).square().mean()"},
			{"example.py", `^    checkpointer.save`, "    print(f\"loss {loss.item():.4f}\")\n$0"},
		},
		elastic: []edit{
			{"example.py", `^import torch\n`, "import elasticdl\n$0"},
			{"example.py", `torch.distributed.init_process_group\(.*\)`,
				`elasticdl.checkpoint("state", every=20); elasticdl.init(sharded=True)`},
			{"example.py", `^    for _ in range\(250\):\n`, `    state = elasticdl.State(model=model, optim=optim)
    dataset = torch.randint(0, vocab_size, (250 * 2 * batch_size, seq_len))
    @elasticdl.run
    def train(state):
      for x in elasticdl.records(dataset, batch_size):
`},
			{"example.py", `^        x = torch.randint.*\n`, ""},
			{"example.py", `loss.backward\(\)`, "elasticdl.weighted(loss).backward()"},
			{"example.py", `^        optim.zero_grad\(\)\n`, "$0        elasticdl.step(loss)\n    train(state)\n"},
			{"example.py", `^    print\(f"loss.*\n`, ""},
			{"example.py", `optim.step\(\)\n`, "optim.step(); print(f\"loss {loss.item():.4f}\")\n"},
		},
		result: regexp.MustCompile(`loss ([0-9.]+)`),
	},
	{
		name:   "mnist",
		path:   "examples/mnist/main.py",
		source: "examples",
		files:  []string{"mnist/main.py"},
		args:   []string{"main.py", "--epochs=2"},
		edits:  []edit{{"main.py", `'../data'`, `'data'`}},
		elastic: []edit{
			{"main.py", `^import torch\n`, "import elasticdl\n$0"},
			{"main.py", `^    torch.manual_seed.*\n`,
				"    elasticdl.checkpoint(\"state\", every=500)\n    elasticdl.init()\n$0"},
			{"main.py", `            print\('Train Epoch.*\n.*\n.*\n            if args.dry_run:\n                break\n`,
				"            print('Loss: {:.6f}'.format(loss.item()))\n        elasticdl.step(loss)\n"},
			{"main.py", `^    for epoch in range\(1, .*\n.*\n.*\n        scheduler.step\(\)\n`,
				`    state = elasticdl.State(model=model, optimizer=optimizer)

    @elasticdl.run
    def run(state):
        net = elasticdl.DistributedDataParallel(model)
        records = elasticdl.records(dataset1, args.batch_size, epochs=args.epochs)
        train(args, net, device, records, optimizer, 1)

    run(state)
    test(model, device, test_loader)
`},
		},
		links:  map[string]string{"data/MNIST": "MNIST"},
		alone:  true,
		result: regexp.MustCompile(`Accuracy: (\d+)/`),
	},
}

var runCLM = []string{"run_clm.py", "--model_type=gpt2", "--tokenizer_name={data}/tokenizer",
	"--config_overrides=n_embd=64,n_layer=2,n_head=2,n_positions=64,vocab_size=1000",
	"--train_file={data}/input.txt", "--do_train", "--block_size=64",
	"--per_device_train_batch_size=4", "--num_train_epochs=6", "--output_dir=out", "--save_steps=50",
	"--save_total_limit=3", "--learning_rate=1e-3", "--logging_steps=50", "--report_to=none", "--use_cpu"}

// newestCheckpoint is the function of docs/frameworks.md: the newest checkpoint that is complete.
const newestCheckpoint = `def newest(directory):
    """Return the newest checkpoint that is complete."""
    from pathlib import Path
    states = sorted(Path(directory).glob("checkpoint-*/trainer_state.json"), key=lambda p: p.stat().st_mtime)
    return str(states[-1].parent) if states else None


`
