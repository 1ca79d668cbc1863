"""Make the data of all programs in a directory: text, its tokens and tokenizer, and images."""

import os
import pickle
import struct
import sys

import numpy as np
from PIL import Image, ImageDraw, ImageFont

directory, texts = sys.argv[1], sys.argv[2:]
chance = np.random.default_rng(0)


def path(*names):
    joined = os.path.join(directory, *names)
    os.makedirs(os.path.dirname(joined), exist_ok=True)
    return joined


# text, as one file and as the numbers of its characters
text = "".join(open(name).read() for name in texts)
with open(path("input.txt"), "w") as file:
    file.write(text)
characters = sorted(set(text))
numbers = {character: number for number, character in enumerate(characters)}
tokens = np.array([numbers[character] for character in text], dtype=np.uint16)
cut = len(tokens) * 9 // 10
tokens[:cut].tofile(path("characters", "train.bin"))
tokens[cut:].tofile(path("characters", "val.bin"))
with open(path("characters", "meta.pkl"), "wb") as file:
    pickle.dump({"vocab_size": len(characters), "itos": dict(enumerate(characters)), "stoi": numbers}, file)

# a tokenizer of that text
from tokenizers import ByteLevelBPETokenizer
from transformers import PreTrainedTokenizerFast

tokenizer = ByteLevelBPETokenizer()
tokenizer.train([path("input.txt")], vocab_size=1000, special_tokens=["<|endoftext|>"])
PreTrainedTokenizerFast(tokenizer_object=tokenizer._tokenizer, eos_token="<|endoftext|>",
                        model_max_length=64).save_pretrained(path("tokenizer", "."))


def digit(label):
    """Draw a digit somewhere in 28 x 28 pixels, with noise."""
    image = Image.new("L", (28, 28))
    place = tuple(chance.integers(3, 10, 2).tolist())
    ImageDraw.Draw(image).text(place, str(label), fill=255, font=ImageFont.load_default(16))
    pixels = np.asarray(image) * chance.uniform(0.6, 1) + chance.uniform(0, 60, (28, 28))
    return np.clip(pixels, 0, 255).astype(np.uint8)


# MNIST's files, with digits that are drawn here
for part, count in (("train", 60000), ("t10k", 10000)):
    labels = chance.integers(0, 10, count).astype(np.uint8)
    images = np.stack([digit(label) for label in labels])
    with open(path("MNIST", "raw", f"{part}-images-idx3-ubyte"), "wb") as file:
        file.write(struct.pack(">IIII", 0x803, count, 28, 28) + images.tobytes())
    with open(path("MNIST", "raw", f"{part}-labels-idx1-ubyte"), "wb") as file:
        file.write(struct.pack(">II", 0x801, count) + labels.tobytes())

# the same as colored pictures: one directory for each label, and all in one directory
for number in range(4000):
    label = number % 10
    picture = Image.fromarray(digit(label)).convert("RGB")
    picture.save(path("folders", "train" if number < 3200 else "validation", str(label), f"{number}.png"))
    picture.resize((64, 64)).save(path("pets", f"digit{label}_{number}.jpg"))
