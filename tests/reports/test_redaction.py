"""With --redact nobody and no place is named, the same one always in the same way, and the rest stays readable."""

from __future__ import annotations

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpuwatch.core.masking.masked_documents import masked_for_sending, redacted
from gpuwatch.core.masking.redactor import Redactor
from gpuwatch.core.model.explanation import Explanation
from gpuwatch.core.model.findings import Finding
from gpuwatch.core.model.run import Run
from gpuwatch.core.model.snapshot import Snapshot
from gpuwatch.explain.diagnosis.explain_log import explain
from gpuwatch.share.reports.report_formats import BY_NAME, render
from tests.every import every
from tests.logs.logs import NAMES
from tests.logs.logs import text as log_text
from tests.reports.diagnostics import died, program
from tests.reports.documents import UUID, full_run, full_snapshot

replace = msgspec.structs.replace


def shown(*texts: str, **fields: str) -> str:
    """What becomes of lines of a log."""
    redactor = Redactor()
    plain = {"log_tail": list(texts), **fields}
    redactor.learn(plain)
    return "\n".join(redactor.replaced(plain)["log_tail"])


@every(
    [
        ("/home/alice/exp/train.py", "/home/user-1/dir-1/file-1.py"),
        ("/Users/Alice Smith/x", "/Users/user-1/dir-1"),
        ("open ~/secret-project/run.sh", "open ~/dir-1/file-1.sh"),
        ("/tmp/scratch/bin/python train", "/tmp/dir-1/bin/python train"),
        ("/tmp/pytest-of-bob/x and /var/tmp/python3", "/tmp/dir-1/dir-2 and /var/tmp/python3"),
        ("/dev/shm/thesis/a.bin", "/dev/shm/dir-1/file-1.bin"),
        ("/run/user/1000/jupyter/x", "/run/user/1000/dir-1/dir-2"),
        ("/mnt/nfs/home/bob/d", "/mnt/dir-1/home/user-1/dir-2"),
        ("LD_LIBRARY_PATH=/opt/acme/lib64:/usr/lib/x", "LD_LIBRARY_PATH=/opt/dir-1/lib64:/usr/lib/x"),
        (
            "/home/alice/miniconda3/envs/paper/lib/python3.11/site-packages/nvidia/cudnn/lib/libcudnn.so.9",
            "/home/user-1/miniconda3/envs/dir-1/lib/python3.11/site-packages/nvidia/cudnn/lib/libcudnn.so.9",
        ),
        ("worker at 10.1.2.3:2222 and 10.1.2.3", "worker at ip-1:2222 and ip-1"),
        ("listening on 127.0.0.1:80 and ::1 and 0.0.0.0", "listening on 127.0.0.1:80 and ::1 and 0.0.0.0"),
        ("from fe80::1ff:fe23:4567:890a", "from ip-1"),
        ("grpc://node17.cluster.example:2222/x", "grpc://host-1:2222/…"),
        ('raise Error("lost n0417.hpc.uni-town.…', 'raise Error("lost host-1…'),
        ("see https://www.tensorflow.org/install/gpu", "see https://www.tensorflow.org/install/gpu"),
        ("mail alice@example.org", "mail mail-1"),
        ("  host      : callisto2", "  host      : host-1"),
        ("sbatch -J kestrel-v7 -p a100 run.sh", "sbatch -J job-1 -p a100 run.sh"),
        ("kubectl -n team-falconer logs trainer-0", "kubectl -n job-1 logs job-2"),
        (r"'C:\\Users\\MLind\\data.csv'", r"'C:\\Users\\user-1\\file-1.csv'"),
        ("ssh -l mlind 10.1.1.1", "ssh -l user-1 ip-1"),
        ("mlindqv+   3312  99.0  3.1 python x", "user-1+   3312  99.0  3.1 python x"),
        ("NVIDIA L40S, 1654823019277, P0", "NVIDIA L40S, serial-1, P0"),
        ("docker pull novachem.azurecr.io/vision:3", "docker pull host-1/vision:3"),
        ("with PID 0 on node ganymede1 exited on signal 9", "with PID 0 on node host-1 exited on signal 9"),
        ("pdsh -S -f 1024 -w ganymede1,ganymede2 export", "pdsh -S -f 1024 -w host-1,host-2 export"),
        ("\x1b[1mwandb\x1b[0m: View run \x1b[33mlemon-snow-1\x1b[0m", "wandb: View run job-1"),
        ("ganymede5 slots=8", "host-1 slots=8"),
        ("events.out.tfevents.1706871234.ganymede5.3312.0", "events.out.tfevents.1706871234.host-1.3312.0"),
        ("Linux ganymede5 5.15.0-91-generic #101-Ubuntu SMP", "Linux host-1 5.15.0-91-generic #101-Ubuntu SMP"),
        (f"on {UUID} and {UUID[:12]}", "on GPU-…-1 and GPU-…-1"),
        ("pod 0123456789abcdef0123456789abcdef", "pod id-1"),
        ("does not appear to be running on this host (node17)", "does not appear to be running on this host (host-1)"),
        ("joe@box:~/data$ ls; joe", "user-1@host-1:~/data$ ls; user-1"),
        ("root@098b49afe624:/# nvidia-smi on 098b49afe624", "root@host-1:/# nvidia-smi on host-1"),
        (
            r"C:\Users\alice\Anaconda3\envs\paper\lib\site-packages\torch\cuda\__init__.py",
            r"C:\Users\user-1\Anaconda3\envs\dir-1\lib\site-packages\torch\cuda\__init__.py",
        ),
        (r"C:\users\nwani\_bazel_nwani\x\tensorflow\core\a.cc", r"C:\users\user-1\dir-1\dir-2\tensorflow\core\a.cc"),
        ("hostname: node17\nlater on node17: x", "hostname: host-1\nlater on host-1: x"),
        ("alice left /home/alice", "user-1 left /home/user-1"),
        ("sbatch -J lake-run; lake-runs", "sbatch -J job-1; lake-runs"),
        ("info of info@hub.example.org", "info of mail-1"),
        ("alice@gmail.com: the gmail quota; see alice", "mail-1: the gmail quota; see user-1"),
        ("to bob@yahoo.co.jp through smtp.gmail.com:587", "to mail-1 through smtp.gmail.com:587"),
        ("cy@acme.com: acme is down, mailgmail.com too", "mail-1: host-1 is down, host-3 too"),
        ("ssh gpu01.live.ai, then n2.web.io", "ssh host-1, then host-2"),  # domains of a company, not of mail
        ("PID USER COMMAND\n 7 li python\n8\nli", "PID USER COMMAND\n 7 user-1 python\n8\nuser-1"),
    ]
)
def test_redaction_of_a_line(text: str, told: str) -> None:
    assert shown(text) == told


@every(
    [
        "Created device /job:localhost/replica:0/task:0/device:GPU:0 with 13762 MB memory:  -> device: 0,"
        " name: Tesla T4, pci bus id: 0000:00:04.0, compute capability: 7.5",
        "asked for /GPU:7 and /device:GPU:1",
        "external/local_xla/xla/stream_executor/cuda/cuda_driver.cc:152] failed call to cuInit",
        "Name: Tesla T4; job 12 of 400; worker 3 lost 2 steps; host=localhost; node is down",
        "loss +1 12 345; t-sne, l-bfgs; search space: lr in [0.1, 0.01]; O=2, N=3; CN=64",
        "Loaded cuDNN version 9.1.0.70, driver version 570.86.10.1",
        "opened /tmp and /dev/shm",
        "no /dev/nvidia0, /proc/driver/nvidia/version and /usr/lib/x86_64-linux-gnu/libcuda.so.1",
        "412 steps/s, and/or 2.5 GiB/s",
        "2026-11-20 09:12:52.660606: I tensorflow/core/x.cc:1]",
        "I0000 00:00:1755594043.834784      19 gpu_device.cc:2022] x",
        "/usr/local/cuda-12.4/lib64/libcudart.so.12",
        r"2018-06-09 22:01:01.782469: I T:\src\tensorflow\core\common_runtime\bfc_allocator.cc:674] 8 Chunks",
        "InUse at 7f4327ffe040 of size 67108864 next 18446744073709551615",
        'op_name="jit(f)/jit(main)/concatenate[dimension=0]"',
        f"pulled nvcr.io/nvidia/pytorch@sha256:{'3f' * 32}",
        "pillow 10.2.0.1, nvidia-cublas-cu12   12.1.3.1, opencv-python==4.8.0.74, TensorRT 8.6.1.6",
        "md5 of cifar-10-python.tar.gz: c58f30108f718f92721af3b95e74349a",
        "c58f30108f718f92721af3b95e74349a  cifar-10-python.tar.gz",
        "at commit 3f2504e04f8911d39a0c0305e82c3301a1b2c3d4",
        "PWD=/",
        "torch.version.git_version = 2a7ef6f36b008ca634d5e6383a3570b8ecda0ac2",
        "Could not resolve host: github.com",
        'File "/opt/conda/lib/python3.11/site-packages/transformers/trainer.py", line 90',
        'docker login: Get "https://registry-1.docker.io/": timeout',
        "dns lookup via 8.8.8.8 failed; inet netmask 255.255.255.0",
        "public key: age1ql3z7hjy54pw3hyww5ayyfg7zqgvc7w3j2elw8zmrj2kg5sfn9aqmcac8p",
        'Error from server (Forbidden): pods is forbidden\nError from server (InternalError): an error ("x")',
        "server (reached limit); gke-gcloud-auth-plugin not found; aks-preview is not installed",
        "failed to connect to remote host ipv6:[::1]:50051; arn:aws:iam::aws:policy/AmazonS3FullAccess",
        "the model's job is done, torch's server and NCCL's process group; today's job; user ABORTED",
        "project re-use is fine; the workspace read-only is; project not found; experiment well-known in the field",
        "ao\u00fbt 25 19:38:04 box: x\nresnet50 12800 76.1 92.9 ok\nepoch 12345 0.5 0.3 python x",
        "kubectl --context minikube get pods; llama-server --context 4096; docker pull vllm/vllm-openai:v0.6",
        "python t.py --model-name bert-base --dataset-name wikitext-103 --optimizer-name adamw_8bit",
        "conv64.… of libcublas12.so.… in torch.nn.modules.…",
    ]
)
def test_what_a_helper_needs_stays(text: str) -> None:
    assert shown(text) == text


@pytest.mark.parametrize(
    ("command", "told"),
    [
        (
            "vllm serve Qwen/Qwen2.5-7B --tokenizer=mistralai/Mistral-7B",
            "vllm serve Qwen/Qwen2.5-7B --tokenizer=mistralai/Mistral-7B",
        ),
        ("docker run nvcr.io/nvidia/pytorch:24.05-py3 a", "docker run nvcr.io/nvidia/pytorch:24.05-py3 a"),
        (
            "python t.py --tokenizer acme/heron datasets/heron nvidia/run.py",
            "python file-1.py --tokenizer dir-1/dir-2 dir-3/dir-2 nvidia/file-2.py",
        ),
    ],
)
def test_public_models_and_images_of_a_command_stay(command: str, told: str) -> None:
    document = {"group": "run", "title": command}
    redactor = Redactor()
    redactor.learn(document)
    assert redactor.replaced(document)["title"] == told


def test_a_user_is_the_same_in_fields_paths_and_lines() -> None:
    told = shown("run by alice in /home/alice/x", "bob and alice2", user="alice")
    assert told == "run by user-1 in /home/user-1/dir-1\nbob and alice2"


def test_names_that_are_words_are_replaced_where_they_are_names_alone() -> None:
    told = shown("the model is on the gpu", "/home/model/x", user="gpu", host="model")
    assert told == "the model is on the gpu\n/home/user-2/dir-1"


@pytest.mark.parametrize("name", ["root", "www-data", "ubuntu", "nvidia-persistenced"])
def test_system_accounts_are_kept(name: str) -> None:
    assert shown(f"by {name}", user=name) == f"by {name}"
    assert Redactor().replaced({"user": name}) == {"user": name}


def test_a_user_under_a_temporary_folder_is_the_same_one() -> None:
    assert shown("/tmp/alice/venv/bin/python", user="alice") == "/tmp/user-1/venv/bin/python"


PRIVATE = ("alice", "node07", "thesis", "patients", "10.20.30.40", UUID, "8f3a9c0d1e2f", "wmg-lab")


def private_snapshot() -> Snapshot:
    snapshot = full_snapshot()
    process = replace(
        snapshot.processes[0],
        command="/home/alice/thesis/.venv/bin/python thesis/train.py --data=/mnt/wmg-lab/patients --server 10.20.30.40",
        container="container 8f3a9c0d1e2f",
    )
    return replace(snapshot, processes=(process, *snapshot.processes[1:]))


def private_run() -> Run:
    return full_run(
        group="run",
        config="run",
        title="python /home/alice/thesis/train.py --data /mnt/wmg-lab/patients",
        log_tail=(
            "kernel driver does not appear to be running on this host (node07)",
            'File "/home/alice/thesis/train.py", line 3, in <module>',
            f"device {UUID} at 10.20.30.40",
        ),
        environment={"CUDA_VISIBLE_DEVICES": UUID, "LD_LIBRARY_PATH": "/home/alice/thesis/lib"},
        problems=("cannot read /mnt/wmg-lab/patients",),
    )


@pytest.mark.parametrize("name", BY_NAME)
@pytest.mark.parametrize(
    "document",
    [
        private_snapshot(),
        private_run(),
        replace(died(), snapshot=private_snapshot(), programs=(private_run(),), host="node07"),
        Explanation(source="/home/alice/thesis/run.log", lines=3, unrecognised=("host: node07", "/mnt/wmg-lab/x")),
    ],
    ids=["snapshot", "run", "diagnostic", "explanation"],
)
def test_nothing_private_is_in_any_format(name: str, document: Snapshot) -> None:
    plain = render(document, name)
    if name in ("json", "text", "html"):
        assert any(word in plain for word in PRIVATE), "there is something to replace"
    drawn = render(document, name, redact=True)
    for word in PRIVATE:
        assert word not in drawn


def test_what_was_equal_is_equal_and_the_original_is_as_it_was() -> None:
    document = private_snapshot()
    told = redacted(document)
    assert told.processes[0].device_uuid == told.devices[0].uuid == told.processes[0].device_map[0].uuid
    assert told.device(told.processes[0].device_uuid) is not None
    assert document.processes[0].user == "alice"
    assert told.devices[0].readings == document.devices[0].readings


def test_the_report_says_that_it_was_redacted() -> None:
    assert redacted(died()).redacted
    assert "users, hosts and paths are replaced" in render(died(), "text", redact=True) or "replaced" in render(
        died(), "markdown", redact=True
    )
    assert not died().redacted


@given(st.text(max_size=120))
def test_any_text_can_be_redacted_and_says_the_same_twice(text: str) -> None:
    assert isinstance(shown(text), str)
    assert shown(text) == shown(text)


_names = st.from_regex(r"\A[a-z]{4}[a-z0-9]{1,8}\Z").filter(lambda name: name not in ("users", "admin", "train"))


@given(user=_names, project=_names)
def test_users_and_their_projects_are_never_shown(user: str, project: str) -> None:
    line = f"Traceback: /home/{user}/{project}/a{project}.py and {user}@x and ~{user}"
    told = shown(line, user=user)
    assert user not in told.replace("Traceback", "")
    assert f"/{project}/" not in told


@pytest.mark.parametrize(
    "text",
    [
        "Another process, pid 4711 (zelda), held 20.0 GiB of GPU 0's 24.0 GiB",
        "process 4711 of zelda held 20.0 GiB: python a.py",
        "End process 4711 of zelda, or wait until it exits; this machine shows no other GPU.",
        "End process 4711, 4712 of zelda, quinn, or wait until it exits.",
        "GPU 0: 3.8 GiB free of 24.0 GiB, held by python (pid 77, zelda): 20.0 GiB",
    ],
)
def test_an_owner_named_only_by_a_finding_is_replaced(text: str) -> None:
    run = program(findings=(Finding(id="unknown", severity="info", certainty="fact", title=text),))
    (found,) = masked_for_sending(run, redact=True).findings
    assert "zelda" not in found.title
    assert "quinn" not in found.title
    assert "user-" in found.title


@pytest.mark.parametrize(
    "text",
    [
        "process worker-1 (pid 4) of this run held 2.0 GiB (NVML)",
        "process 4194305 held 20.0 GiB; its user and command are not known here (in another PID namespace, or exited)",
        "pid 4194305 of the host",
    ],
)
def test_words_beside_a_process_are_no_owners(text: str) -> None:
    run = program(findings=(Finding(id="unknown", severity="info", certainty="fact", title=text),))
    assert masked_for_sending(run, redact=True).findings[0].title == text


def test_the_keys_of_mappings_are_redacted_like_the_values() -> None:
    replaced = Redactor().replaced({"uuid": UUID, "held_bytes": {UUID: 1}, "results": {"largest": 2}})
    assert UUID not in str(replaced)
    assert replaced == {"uuid": replaced["uuid"], "held_bytes": {replaced["uuid"]: 1}, "results": {"largest": 2}}


SAID = {
    "horovodrun -np 8 -H granite17:4,basalt2:4 python t.py": ("granite17", "basalt2"),
    "ssh: connect to host granite-9 port 22: Connection refused": ("granite",),
    "granita  20114 99.8  3.1 python t.py": ("granita",),
    "granita  20114 1-02:03:04 pts/3 Rl+ /usr/bin/python t.py\n 20115 basalta 99.8 3.1 python t.py": (
        "granita",
        "basalta",
    ),
    "Unhandled error starting granita's server: Timeout; killed basalta's job": ("granita", "basalta"),
    "slack: user U07K2QX91ZP is not in channel C05GH41M2QX": ("U07K2QX91ZP", "C05GH41M2QX"),
    'context "arn:aws:eks:eu-north-1:318844120977:cluster/granite-prod" does not exist': ("318844120977", "granite"),
    "no arn:aws:lambda:us-east-1:318844120977:function:granite-resize; arn:aws:s3:::basalt-runs": ("granite", "basalt"),
    "entry for gke_granite-4471_europe-west4_basalt-a100; clusterUser_rg-granite_aks-slate": (
        "granite",
        "basalt",
        "slate",
    ),
    "Workspace slate-1 in resource group rg-granite not found; key vault 'basalt'": ("granite", "basalt"),
    "project granite-finetune of entity x-1 not found; quota for project basalt-vision in us": ("granite", "basalt"),
    "docker --context granitebox run a; helm upgrade a b --kube-context basalt-prod": ("granite", "basalt"),
    "granite: Permission denied (publickey).": ("granite",),
    "mount.nfs: access denied by server while mounting granite:/vol1": ("granite",),
    "docker run --name thesis-train --hostname granite a": ("thesis", "granite"),
    "DISPLAY=granite:10.0": ("granite",),
    "Failed to lookup granite3: Temporary failure in name resolution": ("granite",),
    "nodeName: granite": ("granite",),
    "0/9 nodes are available; node/granite cordoned": ("granite",),
    "hostname=granite rank=3": ("granite",),
    "CN=granite-04, OU=x: certificate verify failed": ("granite",),
    "SUDO_USER=zelda": ("zelda",),
    r"PermissionError: GRANITE\\zelda has no rights": ("GRANITE", "zelda"),
    r"granite\\zelda has no rights on device 0": ("granite", "zelda"),
    "$ whoami\nzelda\n$ hostname\ngranite\n$ nvidia-smi": ("zelda", "granite"),
    "ssh -l zelda -p 2222 granite nvidia-smi": ("zelda", "granite"),
    "Command '['ssh', '-l', 'zelda', '-p', '2222', 'granite', 'ls']' failed": ("zelda", "granite"),
    "node 'granite-22_4711_0' has failed to send a heartbeat": ("granite",),
    "Barrier timed out; coordinator at granite:1234 unreachable": ("granite",),
    "lost heartbeat of host granite after 30 s": ("granite",),
    "worker 3 running on machine granite died": ("granite",),
    "Machine granite is unreachable; worker 2 on machine 'basalt' was preempted": ("granite", "basalt"),
    "rsync: connection to granite failed": ("granite",),
    "USER         PID %CPU COMMAND\nzelda    40213  101 python sweep.py": ("zelda",),
    "PID USER     TIME NODE\n4413 zelda   99.0 granite": ("zelda", "granite"),
    "srun: launch/slurm: node granite: task 3 killed": ("granite",),
    "salloc: Nodes granite are ready for job": ("granite",),
    "Job submitted from granite by user zelda": ("granite", "zelda"),
    "file is locked by zelda on granite": ("zelda", "granite"),
    "finger: zelda: no such user": ("zelda",),
    "Notebook server of zelda stopped": ("zelda",),
    "python 4411 zelda mem REG 0,5 /dev/nvidia0": ("zelda",),
    "/dev/nvidia0: 4411(zelda)": ("zelda",),
    "gcloud compute instances create granite-train --zone=a": ("granite",),
    "tmux attach -t granite": ("granite",),
    "GET http://localhost:8000/users/zelda/models 404": ("zelda",),
    "scp a.pt granite5:/x; rsync -a o/ zelda@basalt-2:o/": ("granite5", "zelda", "basalt"),
    "ssh -p 2222 granite7 nvidia-smi": ("granite7",),
    "HTTPConnectionPool(host='granite', port=8000)": ("granite",),
    "Name or service not known: 'granite'": ("granite",),
    "slurmctld: error: Nodes granite07 not responding": ("granite07",),
    "NodeName=granite CPUs=64": ("granite",),
    "PBS_O_HOST=granite": ("granite",),
    "deepspeed --include granite07:0,1 t.py": ("granite07",),
    "Rank 3 on granite07 failed": ("granite07",),
    "worker granite07:41233 removed": ("granite07",),
    "The authenticity of host 'granite7 (10.3.4.5)' is not known": ("granite7", "10.3"),
    "Machine name: granite": ("granite",),
    "Submitted by zelda on Mon": ("zelda",),
    "[rank3]: RuntimeError: [granite]:29500 refused": ("granite",),
    "NET/Socket: Connect to granite<40321> failed": ("granite",),
    "Worker on granite-a04 terminated": ("granite",),
    "granite-gpu04: 4 GPUs": ("granite",),
    "scontrol show node granite; srun -w basalt,flint python t.py": ("granite", "basalt", "flint"),
    "Host: granite": ("granite",),
    "wandb: Syncing run brave-sun-3 to zelda/net": ("zelda",),
    "whoami: zelda": ("zelda",),
    "id: 'zelda': no such user": ("zelda",),
    "usermod -aG docker zelda": ("zelda",),
    "setfacl -m u:zelda:rwx /data": ("zelda",),
    "lfs quota -u zelda /x": ("zelda",),
    "git config user.name zelda; GIT_AUTHOR_NAME=quinn": ("zelda", "quinn"),
    "/user/zelda/lab is not running": ("zelda",),
    "account_id = 123498761234": ("123498761234",),
    "ssid: Granite-5G": ("Granite",),
    "imei 356938035643809": ("356938035643809",),
    "runuser -u zelda -- python t.py": ("zelda",),
    "squeue -h -u zelda": ("zelda",),
    "qsub -P thesis job.sh": ("thesis",),
    "401 Client Error: https://huggingface.co/api/models/zelda/net, of zelda": ("zelda",),
    "bind failed: uid=zelda,ou=People,dc=lab": ("zelda",),
    "zelda:x:1004:1004:Lab:/w:/bin/bash": ("zelda",),
    'FATAL:  role "zelda" does not exist': ("zelda",),
    "Access denied for user 'zelda'@'localhost'": ("zelda",),
    "10.1.2.3 granite-04 # lab": ("granite",),
    "ssh: Could not resolve hostname granite-store: Name or service not known": ("granite-store",),
    "E0302 09:11:01 worker granite07 lost heartbeat after 30 s": ("granite07",),
    "wandb: Run data: host=granite.local os=Linux": ("granite",),
    "granite4:/tank/data on /data type nfs4": ("granite4",),
    "COMPUTERNAME=GRANITE-14 USERDOMAIN=LAKEMED": ("GRANITE-14", "LAKEMED"),
    "search hpc.granite.se granite.se": ("granite",),
    "subject=C=SE, O=Granite Lake AB, CN=vault.granite.se": ("Granite Lake", "granite.se"),
    "sudo:  wgranite : TTY=pts/3 ; USER=root": ("wgranite",),
    "*** JOB 48817203 ON c1 CANCELLED ***": ("48817203",),
    "qsub: job 2291877.pbs-granite rejected": ("pbs-granite",),
    "Name:         granite-runner-0": ("granite-runner-0",),
    "pull europe-docker.pkg.dev/granite-771/ml-priv/trainer:2": ("granite-771",),
    "ata-SAMSUNG_MZ7LH960_S45NNA0M502417 failing": ("S45NNA0M502417",),
    "attach vol-08d7713fa99bc0e12 failed": ("08d7713fa99bc0e12",),
    "call +46 70 551 28 93 if the rack is hot": ("551 28 93",),
    "ssh wanda@bignode": ("wanda", "bignode"),
    "node07.hpc.uni-musterstadt.de: connection refused": ("node07",),
    "MAC 0c:42:a1:3e:77:1b of ib0": ("0c:42:a1",),
    "python train.py --user kowalski": ("kowalski",),
    "srun --job-name secretproject python t.py": ("secretproject",),
    "SLURM_JOB_NAME=llama-finetune-kowalski": ("llama-finetune-kowalski",),
    "gpunode12:48211:48399 [3] NCCL INFO Bootstrap : Using eth0": ("gpunode12",),
    "Image: registry.acme-corp.com:5000/visionteam/train:1.2": ("acme-corp", "visionteam"),
    "Serial Number : 1562321004312": ("1562321004312",),
    "Nov 23 10:00:01 gpuserver3 kernel: NVRM: Xid": ("gpuserver3",),
    "2026-11-23T10:00:01+00:00 gpuserver4 kernel: NVRM: Xid": ("gpuserver4",),
    "MASTER_ADDR=head-node-9 MASTER_PORT=29500": ("head-node-9",),
    "torchrun --rdzv-endpoint head77:29400 t.py": ("head77",),
    "User: mmuster": ("mmuster",),
    "user=mmuster2": ("mmuster2",),
    "owner: jdoe": ("jdoe",),
    "mail to j.doe@acme.com": ("j.doe",),
    "ip-10-12-3-4.ec2.internal joined": ("ip-10-12-3-4",),
    "gpu1.cluster.local": ("gpu1",),
    "--run-name llm_kowalski_v3": ("llm_kowalski_v3",),
    "--wandb-project topsecret": ("topsecret",),
    "WANDB_PROJECT=topsecret2": ("topsecret2",),
    "POD_NAME=train-alice-0": ("train-alice-0",),
    "Pod: train-bob-0": ("train-bob-0",),
    "Namespace: team-vision": ("team-vision",),
    "container 4f1d9a7b2c3e": ("4f1d9a7b2c3e",),
    "Node: worker-gpu-17": ("worker-gpu-17",),
    "username='kowalski3'": ("kowalski3",),
    "logged in as: kowalski4": ("kowalski4",),
    "HOSTNAME=dgx-0421": ("dgx-0421",),
    "10.1.2.3:29500": ("10.1.2.3",),
    "fe80::1ff:fe23:4567:890a": ("fe80",),
    "/home/alice/x": ("alice",),
    "https://git.acme.de/foo/bar": ("acme",),
    "s3://acme-bucket/data": ("acme-bucket",),
    "--image reg.acme.io/secretteam/img:3": ("secretteam",),
    "SLURM_JOB_ACCOUNT=prof-x-lab": ("prof-x-lab",),
    "--account=prof-y-lab": ("prof-y-lab",),
    "(base) alice@dgx2:~/work$ python": ("dgx2",),
    "root@c0ffee123456:/workspace# python": ("c0ffee123456",),
    "Board ID: 0x2d00abc": ("0x2d00abc",),
    "--experiment-name nightly_bob": ("nightly_bob",),
    "Experiment: bobs_run": ("bobs_run",),
    "logs at gs://my-bucket-7/x": ("my-bucket-7",),
    "hostname: bignode.acme.com": ("bignode",),
    "-rw-r--r-- 1 kowalski visionlab 4096 Nov 23 10:00 train.log": ("kowalski", "visionlab"),
    "kowalski   4711 99.0  1.2 812345 123456 pts/1  Rl  10:00 1:23 python t.py": ("kowalski",),
    "kowalski   4711    4700 99 10:00 pts/1    00:01:23 python t.py": ("kowalski",),
    "> kowalski 812345     1 99 Nov25 ?     12-03:04:05 python3 -m torch.distributed.run t.py": ("kowalski",),
    "[0] NCCL INFO NET/Socket : Using [0]eth0:fe80::a236:9fff:fe12:3456%eth0<0>": ("a236",),
    "[1] NCCL INFO Bootstrap : Using enp1s0f0np10:2001:db8:12:34::5<0>": ("db8",),
    "launch --world_info=eyJnYXVzcyI6IFswXX0= --node_rank=0": ("eyJnYXVzcy",),
    "cmd: deepspeed.launcher.launch --world_info eyJuMSI6IFswXX0= train.py": ("eyJuMSI",),
    " 4711 kowalski  20   0   21.3g   3.1g   1.1g R  99.7  1.2   1:23.45 python": ("kowalski",),
    "kowalski pts/1        10.2.3.4  10:00  1.00s": ("kowalski",),
    "  81234 gpu  moonshot  kowalski  R  1-02:03:04  2 node[07-08]": ("moonshot", "kowalski", "node[07"),
    "uid=1002(kowalski) gid=1002(visionlab) groups=1002(visionlab),27(sudo)": ("kowalski", "visionlab"),
    "[0] Tesla T4 | 40'C, 0 % | 1823 / 15360 MB | kowalski(1823M)": ("kowalski",),
    "pam_unix(sshd:session): session opened for user kowalski by (uid=0)": ("kowalski",),
    "Accepted publickey for kowalski from 10.2.3.4 port 51234": ("kowalski",),
    "$ sudo -u kowalski nvidia-smi": ("kowalski",),
    "chown -R kowalski:users out": ("kowalski",),
    "ACME\\kowalski started it": ("kowalski",),
    "Author: Eva Kowalski <eva@acme.com>": ("Eva", "Kowalski"),
    "srun: error: blade0421: task 3: Exited with exit code 1": ("blade0421",),
    "slurmstepd: error: *** JOB 4711 ON blade0421 CANCELLED AT 2026-11-23T10:00:01 ***": ("blade0421",),
    "[blade0421:04711] *** Process received signal ***": ("blade0421",),
    "ray start --address=headnode:6379": ("headnode",),
    "Nodes: blade[003-017] are down": ("blade[003",),
    "export SLURM_NODELIST=blade[1-4]": ("blade[1",),
    "Successfully assigned visionteam/trainer-0 to ip-10-1-2-3": ("trainer-0", "ip-10-1-2-3"),
    "pod trainer-7d9f8c6b5-x2k9q is Pending": ("trainer-7d9f8c6b5",),
    "wandb: Syncing run icy-sun-12": ("icy-sun-12",),
    "saved in wandb/run-20261123_100001-ab12cd34": ("ab12cd34",),
    "torchrun --rdzv_id moonshot9 t.py": ("moonshot9",),
    "arn:aws:iam::123456789012:role/train": ("123456789012",),
    "123456789012.dkr.ecr.eu-central-1.amazonaws.com/x": ("123456789012",),
    "\\\\fileserver3\\data": ("fileserver3",),
    "git clone git@github.com:acme-robotics/secretnet.git": ("acme-robotics", "secretnet"),
    "see JIRA: VIS-1234": ("VIS-1234",),
    "bucket: acme-weights": ("acme-weights",),
    "port mac 0c42.a13e.771b": ("0c42.a13e",),
    "db1.internal.acme: timeout": ("db1", "acme"),
    "nas.lan is gone": ("nas.lan",),
    "blade-XPS-15 kernel: [  12.3] NVRM: RmInitAdapter failed!": ("blade-XPS-15",),
    "RuntimeError: [dgx-a100-17] NCCL error: unhandled system error": ("dgx-a100-17",),
    "timed out while trying to connect to (bignode, 29500).": ("bignode",),
    "name is no longer available: LAPTOP-1AB2C3D": ("LAPTOP-1AB2C3D",),
    "slurmstepd: error: user kowalski exceeded memory limit": ("kowalski",),
    "removed via condor_rm (by user kowalski)": ("kowalski",),
    "process owned by kowalski holds GPU 0": ("kowalski",),
    "sudo: kowalski is not in the sudoers file.": ("kowalski",),
    "No such file or directory: '\\\\\\\\nas07\\\\homes\\\\kowalski\\\\x.bin'": ("nas07", "kowalski"),
    "I/O error on disk serial S4ABCD0N812345": ("S4ABCD0N812345",),
    "pod/embedder-6b5c7f889c-g54c6 0/1 nodes are available": ("embedder-6b5c7f889c",),
    "pod moonshot-train-worker-0 was evicted": ("moonshot-train-worker-0",),
    'namespace "moonshot" not found': ("moonshot",),
    "kubelet, gke-pool-a100-1f3b9c2d-x7kq  Error": ("gke-pool-a100",),
    "error: Job merger_kowalski_v3 exceeded memory limit": ("merger_kowalski_v3",),
    "Subject: Job 14540866: <finetune> in cluster <moonshot> Exited": ("14540866", "moonshot"),
    "see MLOPS-4821": ("MLOPS-4821",),
    "incident INC0098123 is open": ("INC0098123",),
    "instance i-0a1b2c3d4e5f67890 was reclaimed": ("i-0a1b2c3d4e5f67890",),
    "host key SHA256:uNiVztksCsDhcc0u9e8BrERZ9GmNe1vXSLk9K0mZ8Yg changed": ("uNiVztks",),
    "on-call is +49 151 23456789": ("23456789",),
    "account S-1-5-21-3623811015-3361044348-30300820-1013 denied": ("3623811015",),
    "reserved by Eva Kowalski until Monday": ("Kowalski",),
    'launcher says "hostname": "bignode", "user": "kowalski"': ("bignode", "kowalski"),
    "master_addr: bignode": ("bignode",),
    "scontrol: UserId=kowalski(1001) GroupId=lab(100)": ("kowalski",),
    "INFO Logged in as kowalski": ("kowalski",),
    "cannot open ~kowalski/runs": ("kowalski",),
    "denied for arn:aws:iam::123456789012:user/kowalski": ("kowalski", "123456789012"),
    "2026-11-23 worker: bignode:123:456 [0] NCCL WARN Connect failed": ("bignode",),
    "mount.nfs: bignode:/export failed": ("bignode",),
    "Last login: Mon Nov 23 10:00:01 2026 from bignode": ("bignode",),
    "Warning: Permanently added 'bignode' (ED25519) to the list": ("bignode",),
    "mpirun -np 4 -H bignode:4 python t.py": ("bignode",),
    "The client socket has failed to connect to [bignode]:29500": ("bignode",),
    "Node: bignode/10.1.2.3": ("bignode",),
    "Failed to pull image registry.acme-robotics.io/team/x:1": ("acme-robotics",),
    "projects/moonshot-lab/zones/us-a/instances/x": ("moonshot-lab",),
    "Node GUID: 0x24ec00606be6218a": ("24ec00606be6218a",),
    "Started 1 Task(s) on Host(s) <8*granite22>, of zelda@granite23": ("granite22", "zelda", "granite23"),
    "exec_vnode = (granite22:ncpus=8:ngpus=2)": ("granite22",),
    "#PBS -N thesis-xl": ("thesis-xl",),
    "Job_Owner = zelda@hub03; Job_Name = thesis-xl": ("zelda", "hub03", "thesis-xl"),
    "JobId=7782134 JobName=thesis-xl UserId=zelda(2011) Account=lakelab": ("7782134", "thesis-xl", "zelda", "lakelab"),
    "granite22: Traceback (most recent call last):": ("granite22",),
    "bhosts: lake-n031 unavail": ("lake-n031",),
    "[E] Rank 3 (granite22): barrier timeout of granite23": ("granite22", "granite23"),
    "hosts=['granite22', 'basalt7']": ("granite22", "basalt7"),
    'DCGM{Hostname="granite22",pod="thesis-0",exported_namespace="lakelab"} 1': ("granite22", "thesis-0", "lakelab"),
    '{"kubernetes":{"pod_name":"thesis-77f9","namespace_name":"lakelab"}}': ("thesis-77f9", "lakelab"),
    'configmap "thesis-cfg" not found; deployment.apps/thesis-api restarted': ("thesis-cfg", "thesis-api"),
    "docker exec -it thesis_dev nvidia-smi": ("thesis_dev",),
    "ghcr.io/zelda/net:dev": ("zelda",),
    'wandb.init(project="thesis", entity="lakelab", name="try-3")': ("thesis", "lakelab", "try-3"),
    "mlflow.set_experiment('thesis-prod')": ("thesis-prod",),
    "Co-authored-by: Zelda Lake <zelda.lake@lake.example>; ask zelda.lake": ("Zelda", "zelda.lake"),
    r"FileNotFoundError: 'C:\\Users\\Zelda Lake\\net\\a.yaml'": ("Zelda", "Lake"),
    "[sudo] password for zelda: ": ("zelda",),
    "New session 12 of user zelda.": ("zelda",),
    "Connection to granite22 closed by remote host.": ("granite22",),
    "scp out.pt lake-fs:/data": ("lake-fs",),
    "redis: Error 111 connecting to lake-redis:6379": ("lake-redis",),
    "Service Tag: 7XK2M93; product_serial=8HZ2K13": ("7XK2M93", "8HZ2K13"),
    "Host Name:                 WS-LAKE-07": ("WS-LAKE-07",),
    "GITHUB_ACTOR=zelda GITHUB_REPOSITORY=lakelab/net": ("zelda", "lakelab"),
    "args: Namespace(user='zelda', exp_name='thesis-xl')": ("zelda", "thesis-xl"),
}
"""Texts, and what in them names somebody or something."""
PLAIN = (
    "cannot reach the server of the model; ping ok; looking up 12 keys",
    "sent to port 8080 by role of user",
    "CN=64; nodes/s 12; Host: 95.7 % of the time",
    "see docs.wandb.ai/guides/launch, srun of some-worker-x",
    "running on ubuntu-22 with cuda-12; failed at step-3; rank 3 failed on GPU 0; pre-host2device copy",
    "worker 3 has failed; the server is busy; node conv2d_1 has no gradient; 12 nodes not ready",
    "ssh connection failed; owned by the process; submitted by a user; host is down",
    "memory requested by op model/dense/MatMul",
    "see https://huggingface.co/docs/transformers/main and https://huggingface.co/google/flan-t5-base",
    "ps -u; sort -u a.txt; python -u train.py",
    "[[node conv2d_1/Conv2D]]",
    "{{node sequential_1/dense-2}}",
    "node: conv2d_1",
    "Node name: model_1/dense",
    "Serial: yes",
    "File tensorflow/python/framework/ops.py line 3 in tf.function",
    "torch.nn.modules.linear.Linear",
    "user code traceback: error",
    "CUDA_VISIBLE_DEVICES=0,1",
    "version: 12.4.1",
    "actions/checkout@v4",
    "libcudart.so.12: cannot open",
    "OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB",
    "device: /job:localhost/replica:0/task:0/device:GPU:0",
    "Node: 3, op MatMul",
    "node: {{node model/dense/MatMul}}",
    "image: (224, 224, 3)",
    "see https://www.tensorflow.org/guide",
    "pod: none",
    "docker.io/library/python:3.11",
    "Image: nvcr.io/nvidia/tensorflow:24.03-tf2-py3",
    "00000000:3B:00.0",
    "PCI:0000:3b:00",
    "0000:01:00.0",
    "sm_90 compute capability 9.0",
    "GPU 0: NVIDIA H100 80GB HBM3",
    "transformers.models.llama.modeling_llama",
    "account: none",
    "12:00:01.123456",
    "2026-11-23 10:00:01.123: I tensorflow/core/x.cc:12] msg",
    "step 100 loss: 0.3 user: 3 s",
    "self.user = 5",
    "jax.numpy.linalg",
    "torch.distributed.elastic.multiprocessing.api",
    "epoch 1/3",
    "NCCL WARN Cuda failure 'out of memory'",
    "project: /dev/null",
    "host: localhost",
    "user: root",
    "uid=0(root) gid=0(root) groups=0(root),27(sudo)",
    "-rw-r--r-- 1 root root 4096 Nov 23 10:00 nvidia-smi",
    "x[0:10] and layers[3] of gpu[0]",
    "Starting modprobe@drm.service",
    "weights of shape [768-3072]",
    "train.py:6379: in main",
    "Successfully built abc",
    "torch 2.4.1234.5678",
    "team: 4",
    "eos_token=</s>",
    '"POST /v1/chat/completions HTTP/1.1" 200 OK',
    "No node of the cluster has a free GPU for the pod, so it waits",
    "job failed, run again; the instance of this class",
    "user code traceback exceeded",
    "cluster: none",
    "Failed to pull image nvcr.io/nvidia/tensorflow:24.03-tf2-py3",
    "Logged in as a service",
    "use ~/.cache and ~=2.3/x",
    "connect to [::1]:29500",
    "Node: model/dense/MatMul",
    "projects/x/train.py: No such file",
    "at step:12:30 [0] loss 0.1",
    "from float32 to bfloat16 on resnet50; worker-0: loss 0.3; [rank12]: layer12: 0.3",
    "memory reserved by PyTorch, requested by op add, killed by SIGKILL",
    "Downloading jinja2-cli from pyasn1-modules and albert-base-v2",
    "user interface; user specified device; task: text-generation; entity recognition",
    "hostname: using the name; Owner: Could not read it",
    "out of host memory; error on host side, device 0; [shutdown] API server: shutdown triggered",
    "connection to server failed; connection to database lost; Node attrs: dtype=DT_INT32",
    "error at line:1234 of the file; stopped at step:12000; see dtype:float32 from numpy:12345",
    "NODE_RANK MASTER_PORT WORLD_SIZE\nCRITICAL NODE DOWN\nsee the log",
    r"src\main has no tests; ssh is not installed; ssh -V prints the version",
    "md5 of a is d41d8cd98f00b204e9800998ecf8427e, want 5d41402abc4b2a76b9719d911017c592",
    'ETag: "d41d8cd98f00b204e9800998ecf8427e" differs',
    "GET http://localhost:8000/v1/models 200; GET http://127.0.0.1:6006/metrics 404",
)


def _redacted(text: str) -> str:
    redactor = Redactor()
    redactor.learn([{"text": text}])
    replaced: str = redactor.replaced([{"text": text}])[0]["text"]
    return replaced


@every(SAID)
def test_what_a_text_names_is_replaced(text: str) -> None:
    found = _redacted(text)
    assert not [name for name in SAID[text] if name in found], found


def test_a_name_that_one_text_tells_is_replaced_in_all() -> None:
    redactor = Redactor()
    texts = ["srun --job-name moonshot-7 t.py", "saved moonshot-7 on gpunode12", "gpunode12:1:2 [0] NCCL INFO x"]
    redactor.learn(texts)
    assert not [word for word in ("moonshot", "gpunode12") if word in str(redactor.replaced(texts))]


def test_a_node_tells_of_those_numbered_like_it() -> None:
    redactor = Redactor()
    texts = ["hostname=granite22", "lost granite23 and granite[24-31], not granite or basalt23"]
    redactor.learn(texts)
    assert redactor.replaced(texts)[1] == "lost host-2 and host-3, not granite or basalt23"


def test_a_word_as_name_is_replaced_only_beside_what_tells_it() -> None:
    assert _redacted("owner=gateway of the gateway; Job <88213> took 88213 s").endswith("> took 88213 s")
    assert _redacted("project=memory of 24 GiB memory").endswith(" of 24 GiB memory")


@every(NAMES)
def test_what_an_explanation_finds_and_counts_is_the_same_with_redact(name: str) -> None:
    found = explain([*log_text(name).splitlines(), "granite22:12:48 [3] NCCL INFO x", "user=zelda project=memory"])
    plain, other = masked_for_sending(found), masked_for_sending(found, redact=True)
    assert [finding.id for finding in plain.findings] == [finding.id for finding in other.findings]
    for one, two in zip(plain.findings, other.findings, strict=True):
        assert (one.title, one.severity, one.certainty) == (two.title, two.severity, two.certainty)


@every(PLAIN)
def test_what_names_nobody_stays(text: str) -> None:
    assert _redacted(text) == text


def test_lines_are_masked_together_and_only_so() -> None:
    key = "D7m9d/FrZHBeIv9+wVvnDAAg4KaTBAZmnUTrPUJHanSrCAmvABEXtkbfv9fpiAnf"
    lines = ("-----BEGIN PUBLIC KEY-----", key, "-----END PUBLIC KEY-----")
    finding = Finding(id="unknown", severity="error", certainty="fact", title="x", evidence=lines)
    assert tuple(masked_for_sending(finding).evidence) == lines
