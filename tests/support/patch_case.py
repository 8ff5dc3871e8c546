"""Patches in the forms that git and mail programs write."""

from __future__ import annotations

SIMPLE = """\
diff --git a/kernel.c b/kernel.c
index 257cc56..5716ca5 100644
--- a/kernel.c
+++ b/kernel.c
@@ -1 +1 @@
-foo
+bar
"""


NEW = """\
diff --git a/{0} b/{0}
new file mode 100644
index 0000000..5716ca5
--- /dev/null
+++ b/{0}
@@ -0,0 +1 @@
+bar
"""


BINARY = """\
diff --git a/x.bin b/x.bin
new file mode 100644
index 0000000..c227083
GIT binary patch
literal 2
JcmZQzWMT#Y01f~L

literal 0
HcmV?d00001

"""


MAIL = f"""\
From 1234567890abcdef Mon Sep 17 00:00:00 2001
From: Ann <a@b>
Subject: [PATCH] faster

--- not a header
It is faster.
---
 kernel.c | 2 +-

{SIMPLE}--\x20
2.39.5

"""


def changed(path: str) -> str:
    return SIMPLE.replace("kernel.c", path)
