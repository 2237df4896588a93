"""Trains a small Llama on the texts of docs/, so that a live engine writes text as its tokenizer cuts it.

An engine with random weights writes tokens that no tokenizer makes of their text: whatever goes by text (a
stream that another engine continues) cannot be compared. Needs torch and transformers, which vLLM brings.

usage: trained-model.py MODEL_DIR OUT_DIR [STEPS]   MODEL_DIR: config and tokenizer, with or without weights
"""

import pathlib
import shutil
import sys

import torch
from transformers import AutoConfig, AutoModelForCausalLM, AutoTokenizer

SEED = 1
BATCH, LENGTH = 16, 128

torch.manual_seed(SEED)
torch.set_num_threads(1)
model_dir, out_dir = pathlib.Path(sys.argv[1]), pathlib.Path(sys.argv[2])
steps = int(sys.argv[3]) if len(sys.argv) > 3 else 800
tokenizer = AutoTokenizer.from_pretrained(model_dir)
docs = sorted((pathlib.Path(__file__).parents[2] / "docs").glob("*.md"))
text = "\n".join(line for path in docs for line in path.read_text().splitlines() if not line.startswith("|"))
ids = torch.tensor(tokenizer.encode(text, add_special_tokens=False))
model = AutoModelForCausalLM.from_config(AutoConfig.from_pretrained(model_dir)).float()
optimizer = torch.optim.AdamW(model.parameters(), lr=3e-3)
schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, steps)
for step in range(steps):
    starts = torch.randint(len(ids) - LENGTH, (BATCH,))
    batch = torch.stack([ids[start : start + LENGTH] for start in starts])
    loss = model(input_ids=batch, labels=batch).loss
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    schedule.step()
    if step % 100 == 0 or step == steps - 1:
        print(f"step {step} of {steps}: loss {loss.item():.2f}", flush=True)
model.save_pretrained(out_dir)
for path in model_dir.iterdir():
    if path.name.startswith(("tokenizer", "generation_config")):
        shutil.copyfile(path, out_dir / path.name)
