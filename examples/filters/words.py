"""Words, sentences and signs of English text, as datatrove splits and lists them."""

import spacy

ENDS = (
    "!.?։؝؞؟۔܀܁܂߹࠷࠹࠽࠾।॥၊။።፧፨᙮᜵᜶។៕៖៙៚᠃᠉᥄᥅᪨᪩᪪᪫᭚᭛᭞᭟᭽᭾᰻᰼᱾᱿‼‽⁇⁈⁉⸮⸼⹓⹔。꓿꘎꘏꛳꛷꡶꡷꣎꣏꤯꧈꧉꩝꩞꩟꫰꫱꯫﹒﹖"
    "﹗！．？｡𐩖𐩗𐽕𐽖𐽗𐽘𐽙𐾆𐾇𐾈𐾉𑁇𑁈𑂾𑂿𑃀𑃁𑅁𑅂𑅃𑇅𑇆𑇍𑇞𑇟𑈸𑈹𑈻𑈼𑊩𑑋𑑌𑗂𑗃𑗉𑗊𑗋𑗌𑗍𑗎𑗏𑗐𑗑𑗒𑗓𑗔𑗕𑗖𑗗𑙁𑙂𑜼𑜽𑜾𑥄𑥆𑩂𑩃𑪛𑪜𑱁𑱂𑻷𑻸𑽃𑽄𖩮𖩯𖫵𖬷𖬸𖭄𖺘𛲟𝪈"
)
"""Signs that end a sentence, in all scripts."""
SIGNS = {
    *ENDS,
    *"\"#$%&'()*+,-/:;<=>@[\\]^_`{|}~«´»–—’“”„…∶━►、〈〉《》「」【】％（），１：；～",
    *map(chr, [*range(9), *range(11, 32), *range(127, 160)]),
}
ENGLISH = spacy.blank("en")
ENGLISH.add_pipe("sentencizer")


def words(text: str) -> list[str]:
    """Splits a text into words and signs."""
    ENGLISH.max_length = len(text) + 10
    with ENGLISH.memory_zone():
        return [word for token in ENGLISH.make_doc(text) if (word := token.text.strip())]


def sentences(text: str) -> int:
    """Counts the sentences of a text."""
    ENGLISH.max_length = len(text) + 10
    with ENGLISH.memory_zone():
        return sum(1 for _ in ENGLISH(text).sents)
