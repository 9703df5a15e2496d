# words: how many words its stdin has. What it prints is a number, and so is the answer.
set -f
set -- $(cat)
echo $#
